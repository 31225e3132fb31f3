"""An ONNX model becomes a task graph: of its inference, or of a training step by one rule per operator.

An operator is a task, and a tensor is a value. Tensors that depend only on parameters are computed once and stay
resident throughout, like the parameters. Views are not values. Times come from a device's roofline: products at its
rate, other operators at its bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remat.bridges.onnx.model import Graph, Node, Tensor
from remat.bridges.onnx.operators import POINTWISE, RULES, VIEWS, Rule, flops
from remat.bridges.onnx.reading import read_model
from remat.errors import InstanceError
from remat.generate.devices import DEFAULT, Rates, rates
from remat.messages import brief, listing
from remat.units import LARGEST_SIZE

TYPES = {2: "fp16", 4: "fp32"}


@dataclass(frozen=True, slots=True)
class Imported:
    """A task graph imported from a model.

    Attributes
    ----------
    document : dict
        An instance of kind ``dag``, in microseconds and bytes.
    flops : int
        Operations of a forward.
    unknown : tuple of str
        Unused tensors of unknown shape, which are left out.
    """

    document: dict[str, Any]
    flops: int
    unknown: tuple[str, ...]


def import_model(
    path: str,
    *,
    dimensions: Mapping[str, int] | None = None,
    training: bool = False,
    device: str = DEFAULT,
    name: str | None = None,
) -> Imported:
    """Read a model, and make its task graph (see `import_graph`)."""
    graph = read_model(path, dimensions)
    return import_graph(graph, file=path, training=training, device=device, name=name)


def import_graph(
    graph: Graph, *, file: str, training: bool = False, device: str = DEFAULT, name: str | None = None
) -> Imported:
    """Make the task graph of a model.

    Parameters
    ----------
    graph : Graph
    file : str
        For messages and the source.
    training : bool
        Whether a loss on the outputs and the backwards follow, with gradients of all parameters.
    device : str
        A device of the shipped table.
    name : str, optional
        Default: the graph's.

    Raises
    ------
    InstanceError
        For a shape that is needed and unknown, an operator without a training rule, or sizes beyond 2^62.
    """
    made = _Importer(graph, file, training=training)
    made.rates = rates(device, TYPES.get(made.element, "fp32"))
    made.forward()
    if training:
        made.backward()
    what = "training step" if training else "inference"
    document = {
        "schema": "remat.instance/3",
        "kind": "dag",
        "name": name or graph.name,
        "description": f"{what} of an ONNX model: {made.operators:,} operators, {made.flops / 1e9:.2f} GFLOP forward, "
        f"roofline times of {device}",
        "source": f"imported by: remat import onnx {file}",
        "units": {"time": "us", "memory": "B"},
        "static_memory": made.static,
        "values": [{"id": key, "size": size} for key, size in made.sizes.items()],
        "tasks": made.tasks,
        "inputs": [each for each in graph.inputs if each in made.sizes],
        "outputs": made.outputs(),
    }
    return Imported(document, made.flops, tuple(made.unknown))


@dataclass
class _Importer:
    """Tasks and values in the making."""

    graph: Graph
    file: str
    training: bool
    rates: Rates | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    alias: dict[str, str] = field(default_factory=dict)
    constant: set[str] = field(default_factory=set)
    literal: set[str] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    run: list[Node] = field(default_factory=list)
    kept: dict[str, list[str]] = field(default_factory=dict)
    gradients: dict[str, str] = field(default_factory=dict)
    pending: dict[str, list[str]] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    flops: int = 0
    static: int = 0

    def __post_init__(self) -> None:
        """Refuse inputs of unknown shape, and find what depends on parameters only."""
        if self.graph.dimensions:
            unknown = listing(f"{each} (of {where})" for each, where in self.graph.dimensions.items())
            raise InstanceError(f"{self.file}: dimensions of inputs are unknown: {unknown}; give each a value")
        self.constant = set(self.graph.parameters)
        self.read = {name for node in self.graph.nodes for name in node.inputs} | set(self.graph.outputs)
        for node in self.graph.nodes:
            random = node.operator.startswith(("Random", "Multinomial", "Bernoulli"))
            if not random and all(not name or name in self.constant for name in node.inputs):
                self.constant.update(filter(None, node.outputs))
                if all(not name or name in self.literal for name in node.inputs):
                    self.literal.update(filter(None, node.outputs))
            else:
                self.run.append(node)
        used = {name for node in self.run for name in node.inputs if name in self.constant}
        self.static = sum(self._size(name, "a parameter") for name in sorted(used))

    @property
    def operators(self) -> int:
        """Operators that run."""
        return len(self.run)

    @property
    def element(self) -> int:
        """Bytes of an element of the first floating input or parameter."""
        for name in (*self.graph.inputs, *sorted(self.graph.parameters)):
            if self.graph.tensor(name).floating:
                return self.graph.tensor(name).element
        return 4

    def root(self, name: str) -> str:
        """Return the value that stores a tensor."""
        while name in self.alias:
            name = self.alias[name]
        return name

    def _size(self, name: str, what: str) -> int:
        tensor = self.graph.tensor(name)
        if tensor.shape is None:
            raise InstanceError(
                f"{self.file}: the shape of {brief(name)} ({what}) is unknown; give the dimensions of the inputs, or "
                "run shape inference before"
            )
        if tensor.size > LARGEST_SIZE:
            raise InstanceError(f"{self.file}: {brief(name)} has more than 2^62 bytes")
        return tensor.size

    def _time(self, work: int, traffic: int) -> float:
        assert self.rates is not None
        return 1e6 * max(work / self.rates.flops, traffic / self.rates.bandwidth)

    def _task(self, key: str, reads: list[str], writes: dict[str, int], phase: str, **more: Any) -> None:
        """Append a task; its traffic is its reads and writes, plus `extra` bytes of constants."""
        work, extra = more.pop("work", 0), more.pop("extra", 0)
        reads = list(dict.fromkeys(reads))
        self.sizes.update(writes)
        traffic = sum(self.sizes[name] for name in reads) + sum(writes.values()) + extra
        row: dict[str, Any] = {"id": key, "time": self._time(work, traffic), "reads": reads, "writes": list(writes)}
        self.tasks.append(row | {"phase": phase, "origin": {"op": more.pop("op", "")}} | more)

    # --- forward ------------------------------------------------------------------------------------------------------

    def forward(self) -> None:
        """Append the operators in their order."""
        for name in self.graph.inputs:
            self.sizes[name] = self._size(name, "an input")
        for node in self.run:
            self._forward(node)

    def _forward(self, node: Node) -> None:
        given = [name for name in node.inputs if name]
        moving = [name for name in given if name not in self.constant]
        reads = [self.root(name) for name in moving]
        for name in reads:
            if name not in self.sizes:
                self._size(name, f"which {node} reads")
                raise InstanceError(f"{self.file}: {node} reads {brief(name)}, which no earlier node writes")
        outputs = [name for name in node.outputs if name]
        for name in outputs:
            if name in self.sizes or name in self.alias or name in self.constant:
                raise InstanceError(f"{self.file}: {node} makes {brief(name)}, which already exists")
        passing = node.operator in VIEWS or (node.operator == "Dropout" and not self.training)
        if passing and given and given[0] not in self.constant:
            self.alias[outputs[0]] = given[0]
            self._leave_out(outputs[1:])
            return
        writes = {name: self._size(name, f"which {node} makes") for name in outputs if self._known(name)}
        work = flops(self.graph, node)
        self.flops += work
        if self.training:
            rule = self._rule(node)
            extra = self._kept(node, rule, next(iter(writes), ""))
            self.kept[node.name] = list(extra)
            writes |= extra
        constants = sum(self._size(name, f"which {node} reads") for name in given if name in self.constant)
        pointwise = not self.training and node.operator in POINTWISE
        more = {"in_place": True} if pointwise and all(self._alike(name, node) for name in moving) else {}
        self._task(node.name, reads, writes, "forward", work=work, extra=constants, op=node.operator, **more)

    def _known(self, name: str) -> bool:
        """Whether a tensor has a shape; one that is unknown and that nothing reads is left out."""
        if self.graph.tensor(name).shape is None and name not in self.read:
            self._leave_out([name])
            return False
        return True

    def _leave_out(self, names: list[str]) -> None:
        self.unknown += [name for name in names if self.graph.tensor(name).shape is None]

    def _kept(self, node: Node, rule: Rule, output: str) -> dict[str, int]:
        """Return the values that a forward writes only for its backward."""
        found = {}
        if rule.mask and output:
            found[f"{node.name}.mask"] = rule.mask * self.graph.tensor(output).count
        shape = self.graph.tensor(node.inputs[0]).shape
        if rule.statistics >= 0 and shape:
            channels = shape[1:2] if rule.statistics == 1 else ()
            rows = channels or (max(1, self.graph.tensor(output).count // max(1, *shape[-1:])),)
            found[f"{node.name}.statistics"] = 8 * rows[0]
        return found

    # --- backward -----------------------------------------------------------------------------------------------------

    def _rule(self, node: Node) -> Rule:
        if node.operator in RULES:
            return RULES[node.operator]
        if not any(self.graph.tensor(name).floating for name in node.outputs if name):
            return Rule()  # indices and conditions have no gradient
        raise InstanceError(f"{self.file}: {node} has no training rule; rules are for {listing(sorted(RULES))}")

    def backward(self) -> None:
        """Append the loss and the backwards, in reverse."""
        outputs = [name for name in self.graph.outputs if self.root(name) in self.sizes]
        wanted = [name for name in outputs if self.graph.tensor(name).floating]
        if not wanted:
            raise InstanceError(f"{self.file}: the model has no floating output, so it cannot be trained")
        roots = list(dict.fromkeys(self.root(name) for name in wanted))
        self._task("loss", roots, {"loss": 4}, "loss")
        self._task("loss.backward", roots, {f"d.{name}": self.sizes[name] for name in roots}, "backward")
        self.gradients = {name: f"d.{name}" for name in roots}
        self.made = dict.fromkeys(roots, 1)
        for node in reversed(self.run):
            if node.operator not in VIEWS:
                self._backward(node)

    def _backward(self, node: Node) -> None:
        arriving = [g for name in node.outputs if name and (g := self._summed(self.root(name)))]
        if not arriving:
            return
        rule = self._rule(node)
        inputs = [name for name in node.inputs if name and self.graph.tensor(name).floating]
        moving = [name for name in inputs if name not in self.constant and self.root(name) not in self.graph.inputs]
        learned = [name for index, name in enumerate(node.inputs) if index <= rule.trained and self._is_trained(name)]
        if rule.passes and not learned and all(self._alike(name, node) for name in moving):
            for name in moving:
                self._arrive(self.root(name), arriving[0])
            return
        reads = [*arriving, *self.kept.get(node.name, []), *self._saved(node, rule, inputs, moving, learned)]
        writes: dict[str, int] = {}
        for name in moving:
            root = self.root(name)
            writes[self._fresh(root)] = self.graph.tensor(name).size
        for name in learned:
            key = self._weight(name)
            writes[key] = self.graph.tensor(name).size
        if not writes:
            return
        products = len(moving[:1]) + len(learned[:1]) if rule.product and len(moving) < 2 else len(moving)
        work = flops(self.graph, node) * max(1, products)
        constants = sum(self.graph.tensor(name).size for name in node.inputs if name in self.constant)
        self._task(f"{node.name}.backward", reads, writes, "backward", work=work, extra=constants, op=node.operator)
        for name in moving:
            self._arrived(self.root(name))

    def _saved(self, node: Node, rule: Rule, inputs: list[str], moving: list[str], learned: list[str]) -> list[str]:
        """Return the values of the forward that a backward reads."""
        found: list[str] = []
        if rule.product:
            # The gradient of one factor needs the others; constants are always resident.
            learners = [*moving, *learned]
            factors = [name for name in inputs if name not in self.constant]
            found = [name for name in factors if any(other != name for other in learners) or inputs.count(name) > 1]
        elif rule.inputs:
            found = [name for name in inputs if name not in self.constant]
        if rule.indices:
            found += [name for name in node.inputs if name and not self.graph.tensor(name).floating]
        if rule.outputs:
            found += [name for name in node.outputs if name and self.graph.tensor(name).floating]
        return [root for name in found if (root := self.root(name)) in self.sizes]

    def _is_trained(self, name: str) -> bool:
        """Whether a constant is a parameter or derived from parameters: not a literal, and more than one number."""
        tensor = self.graph.tensor(name)
        return name in self.constant and name not in self.literal and tensor.floating and tensor.count > 1

    def _alike(self, name: str, node: Node) -> bool:
        """Whether an input has the shape of the output."""
        return self.graph.tensor(name).shape == self.graph.tensor(node.outputs[0]).shape

    def _fresh(self, root: str) -> str:
        count = self.made[root] = self.made.get(root, 0) + 1
        name = f"d.{root}" + (f".{count}" if count > 1 else "")
        self.pending.setdefault(root, []).append(name)
        return name

    def _arrived(self, root: str) -> None:
        for name in self.pending.pop(root, []):
            self._arrive(root, name)

    def _arrive(self, root: str, gradient: str) -> None:
        """Add a gradient to the existing one in place."""
        known = self.gradients.get(root)
        if known is None:
            self.gradients[root] = gradient
            return
        count = self.made[root] = self.made.get(root, 0) + 1
        total = f"d.{root}.{count}"
        self._task(total, [known, gradient], {total: self.sizes[root]}, "backward", in_place=True, op="Add")
        self.gradients[root] = total

    def _summed(self, root: str) -> str:
        return self.gradients.get(root, "")

    def _weight(self, name: str) -> str:
        """Name a gradient of a parameter; used again, it is another one."""
        key = f"dW.{name}"
        while key in self.sizes:
            key += "'"
        self.weights[key] = name
        return key

    def outputs(self) -> list[str]:
        """Return the values that stay to the end."""
        if self.training:
            return ["loss", *self.weights]
        return list(dict.fromkeys(root for name in self.graph.outputs if (root := self.root(name)) in self.sizes))


__all__ = ["Imported", "Tensor", "import_graph", "import_model"]
