"""A module cut into layers at its named blocks: a layer computes the arguments of its block, and runs the block.

`torch.export` traces the module with its blocks as opaque operators, so they stay the module's own submodules.
Operations before the first block belong to the first layer; operations after a block belong to the layer of this block.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from remat.bridges.torch.blocks import Block, find_blocks, intercepted
from remat.bridges.torch.pipeline.opaque import HERE, BlockCall, opaque_block, tracing
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import fx, pytree, torch
from remat.bridges.torch.tracing import mutated
from remat.messages import brief, reason


@dataclass(frozen=True)
class Spec:
    """Shape and type of a tensor that passes from layer to layer, and whether it needs a gradient."""

    shape: tuple[int, ...]
    dtype: Any
    needs_gradient: bool

    def tensor(self, device: Any) -> Any:
        """Return a tensor of the same form, with undefined content."""
        return torch.empty(self.shape, dtype=self.dtype, device=device).requires_grad_(self.needs_gradient)

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


@dataclass(frozen=True)
class Layers:
    """A module as a sequence of layers.

    Attributes
    ----------
    names : tuple of str
        Names of the blocks.
    modules : tuple of torch.nn.Module
        Each takes the tensors that arrive, and returns a tuple of those that leave. The first takes the leaves of the
        module's arguments, the last returns the tensors of the module's result.
    arriving : tuple of tuple of Spec
        The tensors that each layer takes.
    inputs : TreeSpec
        Structure of the module's arguments.
    returned : outline
        Structure of the module's result without the tensors.
    given : tuple
        The leaves of the arguments: a `Spec` for each tensor, other values as they are.
    fingerprint : str
    """

    names: tuple[str, ...]
    modules: tuple[Any, ...]
    arriving: tuple[tuple[Spec, ...], ...]
    inputs: Any
    returned: Any
    given: tuple[Any, ...]
    fingerprint: str

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the leaves of the module's arguments.

        Raises
        ------
        TorchError
            If they differ in structure, shape or type from those of the trace.
        """
        leaves, form = _leaves_of(args, kwargs)
        if form != self.inputs:
            raise TorchError("the arguments have another structure than those that the module was traced with")
        for leaf, given in zip(leaves, self.given, strict=True):
            if not isinstance(given, Spec):
                if leaf != given:
                    raise TorchError(f"an argument is {brief(leaf)}, and the module was traced with {brief(given)}")
            elif not isinstance(leaf, torch.Tensor) or (tuple(leaf.shape), leaf.dtype) != (given.shape, given.dtype):
                found = _spec_of(leaf) if isinstance(leaf, torch.Tensor) else brief(leaf)
                raise TorchError(f"an argument of a micro-batch is {found}, and the module was traced with {given}")
        return leaves


def trace_layers(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, blocks: str | Sequence[str]
) -> Layers:
    """Cut a module into one layer for each block, for the shapes of these arguments, without running it.

    Raises
    ------
    TorchError
        If the module cannot be exported, does not call each block once in order, or writes buffers or arguments outside
        its blocks.
    """
    found = find_blocks(module, blocks)
    ordered = {key: (kwargs or {})[key] for key in sorted(kwargs or {})}
    calls = [BlockCall(block) for block in found]
    exported = _exported(module, tuple(args), ordered, found, calls)
    return _Cutter(module, exported, calls).layers(_leaves_of(args, ordered))


def _leaves_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], Any]:
    leaves, form = pytree.tree_flatten((tuple(args), {key: kwargs[key] for key in sorted(kwargs)}))
    return leaves, form


def _spec_of(tensor: Any, *, needs: bool = False) -> Spec:
    return Spec(tuple(map(int, tensor.shape)), tensor.dtype, needs and tensor.is_floating_point())


def _exported(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], blocks: Sequence[Block], calls: Sequence[Any]
) -> Any:
    export: Any = import_module("torch.export")
    forwards = [block.module.forward for block in blocks]

    def handle(index: int, args: Any, kwargs: Any) -> Any:
        return tracing(calls[index], index, forwards[index], args, kwargs)

    try:
        with intercepted(blocks, handle):
            return export.export(module, args, kwargs, strict=False)
    except TorchError:
        raise
    except Exception as error:
        raise TorchError(f"torch.export cannot trace the module: {reason(error, 200)}") from error


class _Cutter:
    """Divides the nodes of an exported program among layers."""

    def __init__(self, module: Any, exported: Any, calls: Sequence[Any]) -> None:
        self.exported = exported
        self.calls = calls
        self.graph = exported.graph
        self.graph.eliminate_dead_code()
        self.outputs = list(self.graph.output_node().args[0])
        self.values: dict[Any, Any] = {}
        """Parameters, buffers and constants of the program, by their nodes."""
        self.inputs: list[Any] = []
        self._names: dict[Any, str] = {}
        self.needs: dict[Any, bool] = {}
        self.free: set[Any] = set()
        self.layer: dict[Any, int] = {}
        self._read_signature(module)
        self._written = self._find_writes()
        self._place()

    def _read_signature(self, module: Any) -> None:
        signature = self.exported.graph_signature
        for one in signature.output_specs:
            if one.kind.name != "USER_OUTPUT":
                self._refuse_write(f"its {one.target}" if one.kind.name == "BUFFER_MUTATION" else "an argument")
        nodes = [node for node in self.graph.nodes if node.op == "placeholder"]
        for node, one in zip(nodes, signature.input_specs, strict=True):
            self._names[node] = one.target or node.name
            if one.kind.name == "USER_INPUT":
                self.inputs.append(node)
            elif one.kind.name == "PARAMETER":
                self.values[node] = module.get_parameter(one.target)
            elif one.kind.name == "BUFFER":
                self.values[node] = module.get_buffer(one.target)
            else:
                self.values[node] = self.exported.constants[one.target]
            self.needs[node] = bool(getattr(self.values.get(node), "requires_grad", False))

    def _find_writes(self) -> set[Any]:
        """Return the nodes whose values are written in place; refuse writes into what outlives the forward."""
        written: set[Any] = set()
        for node in self.graph.nodes:
            written.update(map(_base_of, mutated(node)))
        for node in written:
            if node.op == "placeholder":
                self._refuse_write("an argument" if node in self.inputs else f"its {self._names[node]}")
        return written

    @staticmethod
    def _refuse_write(what: str) -> None:
        raise TorchError(f"the module writes {what} outside its blocks; stages write buffers in blocks only")

    def _place(self) -> None:
        """Find the layer of each node, which nodes need gradients, and which depend on no input or parameter."""
        now, ran = 0, 0
        for node in self.graph.nodes:
            before = node.all_input_nodes
            if node.op == "call_function":
                if node.target is opaque_block():
                    now = self._check_turn(node, ran)
                    ran += 1
                self.needs[node] = self._needs_gradient(node)
            self.layer[node] = now
            if node.target is operator.getitem:
                self.layer[node] = self.layer[before[0]]
            if node.op == "get_attr":
                self.values[node] = getattr(self.exported.graph_module, node.target)
            held = node in self.values and not isinstance(self.values[node], torch.nn.Parameter)
            again = node.op == "call_function" and _pure(node, self.exported) and self.free.issuperset(before)
            if node not in self._written and (held or again):
                self.free.add(node)
        if ran < len(self.calls):
            raise TorchError(f"the module does not call block {self.calls[ran].name}")

    def _check_turn(self, node: Any, ran: int) -> int:
        index = int(node.args[0])
        if index != ran:
            expected = f"{self.calls[ran].name} is the next" if ran < len(self.calls) else "all have run"
            raise TorchError(
                f"the module calls block {self.calls[index].name} where {expected}; blocks run once each, in order"
            )
        return index

    def _needs_gradient(self, node: Any) -> bool:
        if node.target is opaque_block():
            own = self.calls[int(node.args[0])].block
            if any(parameter.requires_grad for parameter in own.parameters()):
                return True
        elif str(node.target) == "wrap_with_set_grad_enabled" and node.args[0] is False:
            return False
        return any(self.needs.get(before, False) for before in node.all_input_nodes)

    def layers(self, given: tuple[list[Any], Any]) -> Layers:
        """Return the layers; `given`: the flattened arguments."""
        leaves, inputs = given
        count = len(self.calls)
        passing = [self._passing(index) for index in range(count - 1)]
        arriving = [self.inputs, *passing]
        leaving = [*passing, [one for one in self.outputs if isinstance(one, fx.Node)]]
        modules = tuple(self._module(index, arriving[index], leaving[index]) for index in range(count))
        specs = [_spec_of(leaf, needs=leaf.requires_grad) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        between = [tuple(_spec_of(node.meta["val"], needs=self.needs[node]) for node in nodes) for nodes in passing]
        told = "\n".join([*(module.code for module in modules), *(", ".join(map(str, one)) for one in between)])
        return Layers(
            tuple(call.name for call in self.calls),
            modules,
            (tuple(specs), *between),
            inputs,
            ([HERE if isinstance(one, fx.Node) else one for one in self.outputs], self.exported.call_spec.out_spec),
            tuple(_spec_of(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves),
            hashlib.sha256(told.encode()).hexdigest(),
        )

    def _passing(self, index: int) -> list[Any]:
        """Return the values that pass from a layer to the next one: made in this or earlier layers, read later."""
        found = []
        for node in self.graph.nodes:
            if node.op == "output" or node in self.free or node in self.values or self.layer[node] > index:
                continue
            if any(self._reads_at(user) > index for user in node.users):
                if not isinstance(node.meta.get("val"), torch.Tensor):
                    raise TorchError(f"{node.name} passes from block to block, and only tensors can")
                found.append(node)
        return found

    def _reads_at(self, user: Any) -> int:
        return len(self.calls) - 1 if user.op == "output" else self.layer[user]

    def _module(self, index: int, arriving: Sequence[Any], leaving: Sequence[Any]) -> Any:
        """Return a layer as a module with a graph."""
        root = torch.nn.Module()
        graph = fx.Graph()
        made = {node: graph.placeholder(node.name) for node in arriving}

        def copied(node: Any) -> Any:
            """Return the copy of a node, with the free nodes that it reads."""
            if node not in made:
                if node in self.values:
                    setattr(root, _flat(node.target), self.values[node])
                    made[node] = graph.get_attr(_flat(node.target))
                else:
                    for before in node.all_input_nodes:
                        copied(before)
                    made[node] = self._copy(node, graph, root, made)
            return made[node]

        for node in self.graph.nodes:
            if node.op == "call_function" and self.layer[node] == index and node not in self.free:
                copied(node)
        graph.output(tuple(map(copied, leaving)))
        return fx.GraphModule(root, graph, f"Layer{index + 1}")

    def _copy(self, node: Any, graph: Any, root: Any, made: Mapping[Any, Any]) -> Any:
        if node.target is not opaque_block():
            return graph.node_copy(node, lambda other: made[other])
        root.call = self.calls[int(node.args[0])]
        return graph.call_module("call", tuple(made[other] for other in node.args[1]))


def _base_of(node: Any) -> Any:
    """Return the node whose memory a view shows."""
    while isinstance(node.target, torch._ops.OpOverload):
        returned = node.target._schema.returns
        if not returned or returned[0].alias_info is None or not isinstance(node.args[0], fx.Node):
            break
        node = node.args[0]
    return node


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _pure(node: Any, exported: Any) -> bool:
    """Return whether running an operator again gives the same value and writes nothing."""
    if node.target is operator.getitem:
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        random = torch.Tag.nondeterministic_seeded in node.target.tags
        return not random and not node.target._schema.is_mutable and node.target is not opaque_block()
    inner = [getattr(exported.graph_module, one.target) for one in node.all_input_nodes if one.op == "get_attr"]
    return bool(inner) and all(_all_pure(one.graph.nodes, exported) for one in inner if isinstance(one, fx.GraphModule))


def _all_pure(nodes: Iterable[Any], exported: Any) -> bool:
    return all(_pure(node, exported) for node in nodes if node.op == "call_function")
