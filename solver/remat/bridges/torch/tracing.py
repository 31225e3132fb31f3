"""Simplification and recording of PyTorch's joint graph."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from remat.bridges.torch.kernel_storage import storage_bytes
from remat.bridges.torch.recording import COLLECTIVES, OPAQUE, WAIT, Held, Node, Recording, Role, TorchError
from remat.bridges.torch.shim import fx, pytree, torch
from remat.bridges.torch.sparse import Entries, is_sparse, storage_key
from remat.bridges.torch.symbolic import Symbols, bytes_moved, is_symbol, tensors_in

STATISTICS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int | None]] = {
    "aten._native_batch_norm_legit_functional.default": ((3, 4), (3, 4), 5),
    "aten._batch_norm_with_update_functional.default": ((3, 4), (4, 5), None),
    "aten.native_batch_norm_backward.default": ((3, 4), (), 7),
    "aten.batch_norm_backward.default": ((3, 4), (), 7),
    "aten.cudnn_batch_norm_backward.default": ((4, 5), (), None),
}
"""Operators of batch normalisation: arguments that are running statistics, items that are the new ones, and the
argument that says whether it is training (None: it always is)."""

NORMALISATIONS = ("aten.native_layer_norm.default", "aten.native_group_norm.default")
"""Operators that return mean and deviation."""

PYTORCH = f"{Path(torch.__file__).parent}/"
"""Folder of remat's files."""

OTHER_COLLECTIVES = ("c10d.", "_c10d_functional_autograd.", "_dtensor.")
"""Collectives that are not plain functions."""

UNDEFINED = ("aten.empty", "aten.new_empty", "aten.empty_like", "aten.empty_strided", "aten.new_empty_strided")
"""Operators that return uninitialised memory."""


def tensors_of(value: Any) -> list[Any]:
    """Return the results of a node element by element, None for anything but a tensor."""
    parts = value if isinstance(value, (tuple, list)) else [value]
    return [part if isinstance(part, torch.Tensor) else None for part in parts]


def schema_of(node: Any) -> Any:
    """Return the schema of a node's operator, None if it has none."""
    return getattr(node.target, "_schema", None)


def argument(node: Any, name: str) -> Any:
    """Return an argument of a node by name, the schema's default if it is not given."""
    for index, known in enumerate(schema_of(node).arguments):
        if known.name == name:
            given = node.args[index] if index < len(node.args) else node.kwargs.get(name, known.default_value)
            return given
    return None


def is_random(node: Any) -> bool:
    """Whether a node draws random numbers; attention is always tagged so, but only draws with nonzero dropout."""
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded not in tags:
        return False
    known = {known.name for known in schema_of(node).arguments}
    if "dropout_p" in known:
        return bool(argument(node, "dropout_p") != 0)
    if operator_name(node) == "aten.native_dropout.default":
        return argument(node, "train") is not False
    return True


def is_effect(node: Any) -> bool:
    """Whether a node has side effects."""
    schema = schema_of(node)
    if schema is not None and schema.is_mutable:
        return True
    # The order of collectives is kept, and a wait belongs to its collective.
    return not operator_name(node).startswith(COLLECTIVES) and bool(node.is_impure(impure_random=False))


def operator_name(node: Any) -> str:
    """Return ``aten.mm.default``."""
    if node.target is operator.getitem:
        return "getitem"
    return str(node.target)


# --------------------------------------------------------------------------------------------- tidying


def tidy(graph: Any) -> dict[int, int]:
    """Merge equal operators and remove dead nodes, in place.

    Returns
    -------
    dict
        Storages of operators that were merged into others, each with the storage that stands for it now.
    """
    stands_for = _merge_equal(graph)
    for node in graph.nodes:
        if node.op == "call_function" and operator_name(node) == WAIT:  # it returns its argument
            mine, its = (left_of(stands_for, _storages(part)[0]) for part in (node, node.args[0]))
            if mine != its:
                stands_for[mine] = its
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or is_effect(node) or is_random(node))
    return stands_for


def _merge_equal(graph: Any) -> dict[int, int]:
    """Merge operators with equal arguments, except random, effectful, undefined-result and output-producing ones."""
    output = next(iter(graph.find_nodes(op="output")))
    kept = {storage for node in output.all_input_nodes for storage in _storages(node)}
    seen: dict[Hashable, Any] = {}
    stands_for: dict[int, int] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or is_effect(node) or is_random(node):
            continue
        if operator_name(node).startswith(COLLECTIVES):
            continue
        if operator_name(node).rpartition(".")[0] in UNDEFINED or kept.intersection(_storages(node)):
            continue
        if node.meta.get("unbacked_bindings"):  # it names a size, which others have in their shapes
            continue
        key = _frozen((node.target, node.args, node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            for storage, other in zip(_storages(node), _storages(first), strict=True):
                # Views of two merged storages may be merged before or after them: compare their representatives.
                mine, its = left_of(stands_for, storage), left_of(stands_for, other)
                if mine != its:
                    stands_for[mine] = its
            node.replace_all_uses_with(first)
            graph.erase_node(node)
    return stands_for


def left_of(stands_for: dict[int, int], storage: int) -> int:
    """Return the storage that replaces one that was merged, possibly several times."""
    while storage in stands_for:
        storage = stands_for[storage]
    return storage


def _frozen(value: Any) -> Hashable:
    """Return something hashable that is equal for equal arguments; 1, 1.0 and True differ."""
    if isinstance(value, (tuple, list)):
        return tuple(_frozen(part) for part in value)
    if isinstance(value, dict):
        return tuple((key, _frozen(part)) for key, part in sorted(value.items()))
    if isinstance(value, slice):
        return ("slice", _frozen((value.start, value.stop, value.step)))
    if is_symbol(value):
        return ("symbol", str(value))
    return (type(value).__name__, repr(value)) if isinstance(value, float) else (type(value).__name__, value)


def _storages(node: Any) -> list[int]:
    return [storage_key(tensor) for tensor in tensors_in(node.meta.get("val"))]


# --------------------------------------------------------------------------------------------- recording


class Recorder:
    """Makes records of the nodes of a tidied joint graph.

    Parameters
    ----------
    module : torch.fx.GraphModule
    forward_outputs : int
        How many of its outputs are the forward's.
    stands_for : dict
        See `tidy`.
    kinds : sequence of str
        The kind of each input.
    symbols : Symbols, optional
        Codes for the sizes of a graph whose sizes are not fixed.
    """

    def __init__(
        self,
        module: Any,
        forward_outputs: int,
        stands_for: dict[int, int],
        kinds: list[str],
        symbols: Symbols | None = None,
    ) -> None:
        self.module = module
        self.forward_outputs = forward_outputs
        self.stands_for = stands_for
        self.kinds = kinds
        self.symbols = symbols
        self.size: Callable[[Any], int] = int if symbols is None else symbols.encode
        self.entries = Entries(self.size)
        self.numbers: dict[int, int] = {}
        self.sizes: list[int] = []
        self.place: dict[Any, int] = {}

    def record(self) -> Recording:
        """Return the whole graph's record."""
        nodes: dict[str, Node] = {}
        outputs: list[Any] = []
        for node in self.module.graph.nodes:
            if node.op == "output":
                outputs = list(pytree.tree_leaves(node.args, is_leaf=lambda leaf: leaf is None))
                continue
            self.place[node] = len(nodes)
            made = self._node(node)
            if self.symbols is None and made.role is Role.CALL:  # else `Symbols.fixed` counts
                made = replace(made, moved=bytes_moved(made, nodes, self.sizes))
            nodes[made.name] = made
        ends = [end.name if isinstance(end, fx.Node) else None for end in outputs]
        split = self.forward_outputs
        return Recording(tuple(nodes.values()), tuple(self.sizes), tuple(ends[:split]), tuple(ends[split:]))

    def _held(self, node: Any) -> tuple[Held | None, ...]:
        value = getattr(self.module, node.target) if node.op == "get_attr" else node.meta.get("val")
        if node.op == "get_attr" and not isinstance(value, torch.Tensor):
            raise TorchError(f"{node.name} is a part of the program that is run as a whole; this cannot be planned")
        held = tuple(
            None if part is None else self._tensor(node, item, part) for item, part in enumerate(tensors_of(value))
        )
        return self._in_full_precision(node, held)

    def _in_full_precision(self, node: Any, held: tuple[Held | None, ...]) -> tuple[Held | None, ...]:
        """Correct meta kernels' types of mean and deviation: the CPU keeps the precision of the weights."""
        if operator_name(node) not in NORMALISATIONS or node.meta["val"][0].device.type != "cpu":
            return held
        weights = [argument(node, name) for name in ("weight", "bias")]
        precise = [part.meta["val"].dtype for part in weights if isinstance(part, fx.Node)]
        if torch.float32 not in precise or node.meta["val"][1].dtype == torch.float32:
            return held
        for index in (1, 2):
            part = node.meta["val"][index]
            self.sizes[self.numbers[storage_key(part)]] = self.size(part.numel() * 4)
        return tuple(h if h is None or i == 0 else replace(h, dtype="float32") for i, h in enumerate(held))

    def _tensor(self, node: Any, item: int, tensor: Any) -> Held:
        key = left_of(self.stands_for, storage_key(tensor))
        if key not in self.numbers:
            self.numbers[key] = len(self.sizes)
            sparse = is_sparse(tensor)
            size = self.entries.bytes(node, tensor) if sparse else self._storage(node, item, tensor)
            self.sizes.append(size)
        shape = tuple(map(self.size, tensor.shape))
        return Held(self.numbers[key], shape, str(tensor.dtype).removeprefix("torch."))

    def _storage(self, node: Any, item: int, tensor: Any) -> int:
        size = storage_bytes(node, item, tensor)
        if self.symbols is not None and not self.symbols.shown(size):
            size = tensor.numel() * tensor.element_size()
        return self.size(size)

    def _node(self, node: Any) -> Node:
        held = self._held(node)
        if node.op == "placeholder":
            if "tangents" in node.name:
                return Node(node.name, Role.TANGENT, tensors=held)
            if is_symbol(node.meta.get("val")):
                return Node(node.name, Role.INPUT, "size")
            if not isinstance(node.meta.get("val"), torch.Tensor):
                return Node(node.name, Role.INPUT, OPAQUE, tensors=held)
            number = sum(1 for known in self.place if known.op == "placeholder") - 1
            kind = self.kinds[number] if number < len(self.kinds) else "input"
            return Node(node.name, Role.INPUT, kind, tensors=held)
        if node.op == "get_attr":
            return Node(node.name, Role.CONSTANT, tensors=held)
        inputs = tuple(read.name for read in node.all_input_nodes)
        if is_symbol(node.meta.get("val")):
            arguments = self._text((node.args, dict(node.kwargs)))
            return Node(node.name, Role.SIZE, operator_name(node), arguments, inputs, source=source_of(node))
        if node.target is operator.getitem:
            item = node.args[1]
            return Node(node.name, Role.ITEM, "getitem", str(item), inputs, held, item=int(item))
        return self._call(node, inputs, held)

    def _call(self, node: Any, inputs: tuple[str, ...], held: tuple[Held | None, ...]) -> Node:
        name = operator_name(node)
        if name.startswith(OTHER_COLLECTIVES):
            raise TorchError(
                f"{name} is a collective that writes into its arguments ({source_of(node)}); this cannot be planned"
            )
        if schema_of(node) is None and held:
            raise TorchError(f"{name} is not a plain operator ({source_of(node)}); this cannot be planned")
        statistics, renewed = _statistics(node, name)
        dropped = argument(node, "p") if name == "aten.native_dropout.default" else None
        several = isinstance(node.meta.get("val"), (tuple, list))
        return Node(
            node.name,
            Role.CALL,
            name,
            self._text((node.args, dict(node.kwargs))),
            inputs,
            held,
            several,
            random=is_random(node),
            mutates=tuple(read.name for read in mutated(node)),
            effect=is_effect(node),
            statistics=statistics,
            renewed=renewed,
            dropout=None if dropped is None else float(dropped),
            backward=node.meta.get("partitioner_tag") == "is_backward",
            module=module_of(node),
            source=source_of(node),
            flops=self._flops(node),
        )

    def _flops(self, node: Any) -> int:
        if self.symbols is None:
            return int(_flops(node))
        unknown: Any = import_module("torch.fx.experimental.symbolic_shapes").GuardOnDataDependentSymNode
        try:
            return self.size(_flops(node))
        except unknown:  # PyTorch's formula compares sizes that depend on data
            return 0

    def _text(self, value: Any) -> str:
        """Return arguments as text: nodes by number, since names differ between releases."""
        match value:
            case tuple() | list():
                return "(" + ", ".join(self._text(part) for part in value) + ")"
            case dict():
                return "{" + ", ".join(f"{key}={self._text(part)}" for key, part in sorted(value.items())) + "}"
            case _ if isinstance(value, fx.Node):
                return f"#{self.place[value]}"
            case _:
                return str(value)


def mutated(node: Any) -> Iterator[Any]:
    """Yield the nodes whose memory an operator writes."""
    schema = schema_of(node)
    for index, known in enumerate(schema.arguments if schema is not None else ()):
        if known.alias_info is not None and known.alias_info.is_write:
            given = node.args[index] if index < len(node.args) else node.kwargs.get(known.name)
            yield from (part for part in pytree.tree_leaves(given) if isinstance(part, fx.Node))


def _statistics(node: Any, name: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the inputs that are running statistics, and the items that are new ones, of a training normalisation."""
    if name not in STATISTICS:
        return (), ()
    places, renewed, training = STATISTICS[name]
    if training is not None and not node.args[training]:
        return (), ()
    read = [node.args[place] for place in places if place < len(node.args)]
    return tuple(part.name for part in read if isinstance(part, fx.Node)), renewed


def module_of(node: Any) -> str:
    """Return the module that called an operator, as `named_modules` names it."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    path = re.sub(r"^L\[['\"]\w+['\"]\]", "", path).replace(".__dict__['_modules']", "._modules")
    return re.sub(r"\._modules\[['\"](.*?)['\"]\]|\[(\d+)\]", r".\1\2", path).strip(".")


def source_of(node: Any) -> str:
    """Return file and line of the user's code from which a node comes: the innermost outside PyTorch, if any is."""
    found = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    if not found:
        return ""
    path, line = next((entry for entry in reversed(found) if not entry[0].startswith(PYTORCH)), found[-1])
    return f"{path.rpartition('/')[2]}:{line}"


# --------------------------------------------------------------------------------------------- work


def values_of(value: Any) -> Any:
    """Return arguments in which the results of nodes replace the nodes."""
    return pytree.tree_map(lambda part: part.meta.get("val") if isinstance(part, fx.Node) else part, value)


def _flops(node: Any) -> Any:
    """Count the operations of matrix products, convolutions and attention, as PyTorch's own counter does."""
    formula = formula_of(node)
    if formula is None:
        return 0
    args, kwargs = values_of((node.args, dict(node.kwargs)))
    return formula(*args, **kwargs, out_val=node.meta.get("val"))


def formula_of(node: Any) -> Callable[..., Any] | None:
    """Return the function that counts the operations of a product, a convolution or attention; None for all others."""
    counter: Any = import_module("torch.utils.flop_counter")
    aten = torch.ops.aten
    same = {
        aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: aten._scaled_dot_product_flash_attention_backward,
    }
    packet = getattr(node.target, "overloadpacket", None)
    found: Callable[..., int] | None = counter.flop_registry.get(same.get(packet, packet))
    return found
