"""Graphs with sizes that are not fixed: each call runs in an order whose peak was verified for its sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.graph_emission import emit
from remat.bridges.torch.graphs import build, compile_boxed
from remat.bridges.torch.planning import Plan

Boxed = Callable[[list[Any]], Any]


class Orders:
    """The orders in which a graph runs, and which of them is for which sizes.

    A call with known sizes looks its order up. New sizes ask `choose` for a plan; if its order is new, too, its graphs
    are built. PyTorch sees one forward and one backward, and passes the number of the order from one to the other.

    Parameters
    ----------
    captured : Captured
        With `symbols`.
    choose : callable
        Returns the plan for a captured step of fixed sizes.
    """

    def __init__(self, captured: Captured, choose: Callable[[Captured], Plan]) -> None:
        assert captured.symbols is not None
        self.captured = captured
        self.symbols = captured.symbols
        self.choose = choose
        self.number_of: dict[tuple[int, ...], int] = {}
        self.runs: list[tuple[str, ...]] = []
        self.compiled: list[tuple[Boxed, Boxed]] = []

    def first(self, inputs: Sequence[Any]) -> tuple[Any, Any]:
        """Plan for the sizes of the trace; return the graphs of forward and backward, as PyTorch is to see them."""
        number = self._number(self.symbols.hints, inputs)
        return build(self.captured, emit(self.captured.joint, self.runs[number]), numbered=self._numbered)

    @property
    def _numbered(self) -> bool:
        """Whether there can be several orders: sizes from inputs are passed to the backward."""
        return bool(self.captured.joint.sizes and self.symbols.places)

    def _number(self, key: tuple[int, ...], arguments: Sequence[Any]) -> int:
        if key not in self.number_of:
            captured = self.captured.at(key)
            captured.tensors = list(arguments)
            runs = self.choose(captured).runs
            if runs not in self.runs:
                forward, backward = build(self.captured, emit(self.captured.joint, runs))
                self.compiled.append((compile_boxed(forward), compile_boxed(backward)))
                self.runs.append(runs)
            self.number_of[key] = self.runs.index(runs)
        return self.number_of[key]

    def forward(self, _: Any, __: Any) -> Boxed:
        """Compile the forward for PyTorch."""

        def run(arguments: list[Any]) -> Any:
            number = self._number(self.symbols.key(arguments), arguments)
            outputs = self.compiled[number][0](arguments)
            return (*outputs, number) if self._numbered else outputs

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def backward(self, _: Any, __: Any) -> Boxed:
        """Compile the backward for PyTorch."""

        def run(arguments: list[Any]) -> Any:
            number = arguments.pop(len(self.captured.joint.sizes)) if self._numbered else 0
            return self.compiled[number][1](arguments)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run
