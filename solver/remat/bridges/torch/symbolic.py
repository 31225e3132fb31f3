"""Sizes that are not fixed: the symbols of a joint graph, and its recording for given values of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from remat.bridges.torch.recording import Held, Node, Recording, Role, TorchError
from remat.bridges.torch.shim import torch

UNBOUNDED = 1 << 48
"""Upper ends of ranges from here on are no bounds."""


def is_symbol(value: Any) -> bool:
    """Whether a value is a number that is only known at run time."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def tensors_in(value: Any) -> list[Any]:
    """Return the tensors among the results of a node."""
    parts = value if isinstance(value, (tuple, list)) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def symbols_in(value: Any) -> Iterator[Any]:
    """Yield the symbols in the results of a node."""
    parts = value if isinstance(value, (tuple, list)) else [value]
    for part in parts:
        for size in part.shape if isinstance(part, torch.Tensor) else [part]:
            if is_symbol(size):
                yield from sorted(size.node.expr.free_symbols, key=str)


class Symbols:
    """The symbols of a joint graph whose sizes are not fixed.

    While it is recorded, a size that is an expression of symbols is a negative number, its *code*. `fixed` then
    replaces the codes. A size that depends on data counts as the largest that it can have.

    Attributes
    ----------
    places : list of (symbol, int, int or None)
        Where a call shows the value of a symbol: an input that is the symbol, or an input and its dimension.
    hints : tuple of int
        The values with which the graph was traced.
    """

    def __init__(self, nodes: Sequence[Any], environment: Any) -> None:
        self.environment = environment
        self.places: list[tuple[Any, int, int | None]] = []
        self.bounds: dict[Any, tuple[int, ...]] = {}
        self.made_by: dict[Any, str] = {}
        self._codes: dict[Any, int] = {}
        inputs = [node for node in nodes if node.op == "placeholder" and "tangents" not in node.name]
        sizes: list[tuple[Any, int, int | None]] = [
            (node.meta.get("val"), index, None) for index, node in enumerate(inputs)
        ]
        sizes += [
            (size, index, dim)
            for index, node in enumerate(inputs)
            for tensor in tensors_in(node.meta.get("val"))
            for dim, size in enumerate(tensor.shape)
        ]
        hints: dict[Any, int] = {}
        for size, index, dim in sizes:
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol and size.node.expr not in hints:
                hints[size.node.expr] = int(size.node.hint)
                self.places.append((size.node.expr, index, dim))
        self.hints = tuple(hints.values())
        for node in nodes:
            for symbol in symbols_in(node.meta.get("val")):
                if symbol not in hints and symbol not in self.made_by:
                    self._bind(symbol, node)

    @classmethod
    def of(cls, graph: Any) -> Symbols | None:
        """Return the symbols of a graph; None if all sizes are fixed."""
        nodes = list(graph.nodes)
        for node in nodes:
            value = node.meta.get("val")
            sizes = [value] if is_symbol(value) else [size for part in tensors_in(value) for size in part.shape]
            for size in sizes:
                if is_symbol(size):
                    return cls(nodes, size.node.shape_env)
        return None

    def _bind(self, symbol: Any, node: Any) -> None:
        """Record the producer of a size that depends on data, and its bound: a selection has at most all elements."""
        self.made_by[symbol] = f"{node.target} ({node.name})"
        read = [tensor for known in node.all_input_nodes for tensor in tensors_in(known.meta.get("val"))]
        if tensors_in(node.meta.get("val")) and read:
            self.bounds[symbol] = tuple(self.encode(tensor.numel()) for tensor in read)

    def encode(self, size: Any) -> int:
        """Return a size as a number: itself, or the code of its expression."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression.is_number:
            return int(expression)
        return -1 - self._codes.setdefault(expression, len(self._codes))

    def shown(self, size: Any) -> bool:
        """Whether a call shows the value of a size: that of a whole storage is unknown if the input is a part of it."""
        if not is_symbol(size):
            return True
        known = {symbol for symbol, _, _ in self.places} | self.made_by.keys()
        return bool(size.node.expr.free_symbols <= known)

    def key(self, arguments: Sequence[Any]) -> tuple[int, ...]:
        """Return the values of the symbols in a call of the graph."""
        return tuple(
            int(arguments[index] if dim is None else arguments[index].shape[dim]) for _, index, dim in self.places
        )

    def _values(self, key: Sequence[int]) -> list[int]:
        """Return the values of all coded expressions."""
        sympy: Any = import_module("sympy")
        known = {symbol: sympy.Integer(value) for (symbol, _, _), value in zip(self.places, key, strict=True)}
        for symbol, value in list(known.items()):  # PyTorch may have found it to equal another one meanwhile
            equal = self.environment.replace(symbol)
            if equal.is_symbol:
                known[equal] = value
        found: list[int] = []
        for expression in self._codes:  # those of bounds come before those that need them
            value = expression.xreplace(known)
            found.append(int(value) if value.is_number else self._largest(value, found))
        return found

    def _largest(self, expression: Any, found: list[int]) -> int:
        """Return the largest value of an expression whose other symbols depend on data."""
        ranges: Any = import_module("torch.utils._sympy.value_ranges")
        limits: dict[Any, Any] = {}
        for symbol in expression.free_symbols:
            known = self.environment.var_to_range.get(symbol)
            most = UNBOUNDED if known is None else min(UNBOUNDED, known.upper)
            if symbol in self.bounds:
                most = min(most, max(bound if bound >= 0 else found[-1 - bound] for bound in self.bounds[symbol]))
            if most >= UNBOUNDED:
                made = self.made_by.get(symbol, str(symbol))
                raise TorchError(
                    f"{made} is a size that depends on data and has no upper bound; torch._check(n <= MOST) gives one"
                )
            limits[symbol] = ranges.ValueRanges(0, most)
        return int(ranges.bound_sympy(expression, limits).upper)

    def fixed(self, template: Recording, key: Sequence[int]) -> Recording:
        """Return a recording with codes as the recording for these values of the symbols."""
        values = self._values(key)

        def decoded(number: int) -> int:
            return number if number >= 0 else values[-1 - number]

        storages = tuple(decoded(size) for size in template.storages)
        nodes: dict[str, Node] = {}
        for node in template.nodes:
            held = tuple(_decoded(tensor, decoded) for tensor in node.tensors)
            nodes[node.name] = replace(node, tensors=held, flops=decoded(node.flops))
        for name, node in nodes.items():
            if node.role is Role.CALL:
                nodes[name] = replace(node, moved=bytes_moved(node, nodes, storages))
        return replace(template, nodes=tuple(nodes.values()), storages=storages)


def _decoded(tensor: Held | None, decoded: Any) -> Held | None:
    if tensor is None or min(tensor.shape, default=0) >= 0:
        return tensor
    return replace(tensor, shape=tuple(map(decoded, tensor.shape)))


def bytes_moved(node: Node, nodes: dict[str, Node], storages: Sequence[int]) -> int:
    """Add up the bytes of all tensors that a node reads and returns, each at most the size of its storage."""
    total = 0
    for held in (*(held for name in node.inputs for held in nodes[name].tensors), *node.tensors):
        if held is not None:
            size = getattr(torch, held.dtype).itemsize
            for length in held.shape:
                size *= length
            total += min(size, storages[held.storage])
    return total
