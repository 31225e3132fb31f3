"""The orders in which a compiled graph runs: each call is executed in one of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.costs import Costs
from remat.bridges.torch.graph_emission import Emitted, emit
from remat.bridges.torch.graphs import build, compile_boxed
from remat.bridges.torch.observation import Graph, Watch
from remat.bridges.torch.operator_timing import MEASURE, costs_of
from remat.bridges.torch.plan_options import Choices
from remat.bridges.torch.recording import Role
from remat.bridges.torch.shim import torch
from remat.bridges.torch.surroundings import Surroundings

Boxed = Callable[[list[Any]], Any]
Key = tuple[int, ...]
Runs = tuple[str, ...]


class Chooser(Protocol):
    """Decides in which order a call runs, and may observe it."""

    watch: Watch | None

    @property
    def observing(self) -> Surroundings | None:
        """The observer of the present step."""
        ...

    def enter(self, orders: Orders, key: Key, arguments: list[Any]) -> Runs:
        """Return the tasks in order, before the call runs."""
        ...

    def leave(self, outputs: tuple[Any, ...], token: Any) -> None:
        """Record the outputs and saved tensors of the call; the token lives until its backward has run."""

    def turn(self, token: Any, gradients: tuple[Any, ...]) -> None:
        """Record the gradients that the backward of a call returned."""


class Orders:
    """A training graph whose calls may run in different orders, for example for other sizes.

    PyTorch sees one forward and one backward. The forward saves a tensor without elements, whose shape tells the
    backward in which order the forward ran.

    Parameters
    ----------
    captured : Captured
    choices : Choices
    chooser : Chooser

    Attributes
    ----------
    alone, least : dict
        Orders by the sizes of a call: as the only graph of a step; with the smallest peak, and this peak.
    """

    def __init__(self, captured: Captured, choices: Choices, chooser: Chooser) -> None:
        self.captured = captured
        self.choices = choices
        self.chooser = chooser
        self.alone: dict[Key, Runs] = {}
        self.least: dict[Key, tuple[Runs, int]] = {}
        self.outputs = len(captured.recording.outputs)
        self.opaque = len(captured.joint.opaque)
        self.sizes = len(captured.joint.sizes) + self.opaque
        self.tangents = sum(node.role is Role.TANGENT for node in captured.recording.nodes)
        self.runs: dict[Runs, int] = {}
        self.compiled: list[tuple[Boxed, Boxed]] = []
        self.emitted: list[tuple[Emitted, tuple[Any, Any]]] = []
        self._sized: dict[Key, Captured] = {}
        self._measured: dict[Key, Costs] = {}

    def graphs(self) -> tuple[Any, Any]:
        """Return the graphs of forward and backward for PyTorch, which never run."""
        return build(self.captured, emit(self.captured.joint, self.captured.joint.keep_all))

    def sized(self, key: Key, arguments: list[Any]) -> Captured:
        """Return the step with the sizes of a call, measured with its arguments on request."""
        step = self.captured if self.captured.symbols is None else self._sized.get(key)
        if step is None:
            step = self.captured.at(key)
            self._sized = {key: step}
        if self.choices.costs == MEASURE:
            if key not in self._measured:
                step.tensors = arguments
                self._measured[key] = costs_of(step, MEASURE, self.choices.cache)
                step.tensors = None
            step.measured = self._measured[key]
        return step

    def _number(self, runs: Runs) -> int:
        if runs not in self.runs:
            emitted = emit(self.captured.joint, runs)
            forward, backward = build(self.captured, emitted)
            self.emitted.append((emitted, (forward, backward)))
            self.compiled.append((compile_boxed(forward), compile_boxed(backward)))
            self.runs[runs] = len(self.runs)
        return self.runs[runs]

    def _outside(self) -> Any:
        """Return a context for a graph, and a list that receives every tensor of the graph."""
        outside = self.chooser.observing
        return nullcontext([]) if outside is None else outside.graph()

    def forward(self, _: Any, __: Any) -> Boxed:
        """Compile the forward for PyTorch."""
        symbols = self.captured.symbols

        def run(arguments: list[Any]) -> Any:
            key = () if symbols is None else symbols.key(arguments)
            runs = self.chooser.enter(self, key, arguments)
            number = self._number(runs)
            watch = self.chooser.watch
            with self._outside() as made:
                if watch is None:
                    returned = self.compiled[number][0](arguments)
                else:
                    step = self.sized(key, arguments)
                    costs = costs_of(step, self.choices.costs, self.choices.cache)
                    returned = watch.forward(Graph(step, costs, runs, *self.emitted[number]), arguments)
                made += returned
                token = torch.empty((number, 0))
                made.append(token)
            self.chooser.leave(returned, token)
            end = len(returned) - self.sizes
            return (*returned[:end], token, *returned[end:])

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def backward(self, _: Any, __: Any) -> Boxed:
        """Compile the backward for PyTorch."""

        def run(arguments: list[Any]) -> Any:
            token = arguments.pop(len(arguments) - self.tangents - self.opaque - 1)
            number, watch = token.shape[0], self.chooser.watch
            outside = self.chooser.observing
            if outside is not None:
                outside.take(arguments[len(arguments) - self.tangents :])
            with self._outside() as made:
                if watch is not None and watch.began(self.emitted[number][0]):
                    returned = watch.backward(self.emitted[number][0], arguments)
                else:
                    returned = self.compiled[number][1](arguments)
                made += returned
            self.chooser.turn(token, returned)
            return returned

        run._boxed_call = True  # type: ignore[attr-defined]
        return run
