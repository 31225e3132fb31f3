"""`remat.torch.measure`: time and workspace of each operator, on the device where the module lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.costs import Costs, costs_document, key_of, read_costs
from remat.bridges.torch.interpreter import Interpreter, given_tensors
from remat.bridges.torch.joint import Task
from remat.bridges.torch.measure import median_time, unseen, workspace_of
from remat.bridges.torch.plans import Event
from remat.bridges.torch.recording import Node, Role
from remat.bridges.torch.shim import torch
from remat.bridges.torch.weightless import check_data

MEASURE = "measure"
"""Costs that stand for a measurement."""


def measure(captured: Captured, inputs: Any = None, *, repeats: int = 5) -> dict[str, Any]:
    """Measure each operator of a captured step; buffers and the random state are preserved.

    Parameters
    ----------
    captured : Captured
    inputs : (args, kwargs), optional
        As for `execute`.
    repeats : int
        Runs of each operator; the median counts.

    Returns
    -------
    dict
        A document for `Captured.instance(costs=...)`, or to be written to a file.
    """
    given = given_tensors(captured, inputs)
    check_data(given)
    with unseen():  # of a compiler that is at work, where nothing would really run
        return _measured(captured, given, repeats)


def costs_of(captured: Captured, costs: str | Costs | Mapping[str, Any] | None) -> Costs:
    """Read costs, or measure them once for a captured step."""
    if costs != MEASURE:
        return read_costs(costs)
    if captured.measured is None:
        captured.measured = read_costs(measure(captured))
    return captured.measured


def _measured(captured: Captured, given: list[Any], repeats: int) -> dict[str, Any]:
    names = [node.name for node in captured.recording.nodes if node.role is Role.INPUT]
    written = {name for node in captured.recording.nodes for name in node.mutates}
    given = [tensor.clone() if name in written else tensor for name, tensor in zip(names, given, strict=True)]
    stopwatch = _Stopwatch(captured, given, repeats=repeats)
    with torch.random.fork_rng():
        stopwatch.replay([Event(task) for task in captured.joint.keep_all])
    device = next(tensor.device for tensor in given if isinstance(tensor, torch.Tensor))
    return costs_document(str(device), stopwatch.found)


class _Stopwatch(Interpreter):
    """Runs each operator several times."""

    def __init__(self, captured: Captured, given: list[Any], *, repeats: int) -> None:
        super().__init__(captured, given)
        self.repeats = repeats
        self.found: dict[str, tuple[int, int]] = {}

    def tangents(self) -> Iterator[tuple[Node, bool]]:
        """Yield all tangents as 1: a graph without a loss is measured as well."""
        return ((node, True) for node in self.captured.recording.nodes if node.role is Role.TANGENT)

    def step(self, task: Task) -> None:
        """Measure a task's operator, unless one like it was measured; then run it."""
        node = self.captured.joint.nodes.get(task.node)
        if node is not None and key_of(node) not in self.found:

            def call() -> Any:
                return self.made(task.node, {})

            call()
            seconds, workspace = median_time(call, self.repeats), workspace_of(call)
            self.found[key_of(node)] = (max(1, round(seconds * 1e6)), workspace)
        super().step(task)


__all__ = ["MEASURE", "Costs", "costs_of", "measure", "read_costs"]
