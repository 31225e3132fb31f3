"""`remat.torch.measure` and `profile`: time and workspace of each operator, on the device of the module."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.costs import Costs, costs_document, key_of, read_costs
from remat.bridges.torch.interpreter import Interpreter, from_mask, given_tensors, mask_scale
from remat.bridges.torch.measure import clock, microseconds, unseen, workspace_of
from remat.bridges.torch.plans import Event, events_of
from remat.bridges.torch.recording import WAIT, Node, Role
from remat.bridges.torch.shim import pytree, torch
from remat.bridges.torch.weightless import check_data
from remat.documents import write_text
from remat.solving.external_schedule import schedule_of

MEASURE = "measure"
"""Costs that request a measurement."""

Found = dict[str, tuple[int, int]]


def measure(captured: Captured, inputs: Any = None, *, repeats: int = 5) -> dict[str, Any]:
    """Measure each operator of a captured step: `profile` without a cache.

    Parameters
    ----------
    captured, inputs, repeats
        As for `profile`.

    Returns
    -------
    dict
        A document for `Captured.instance(costs=...)`, or to be written to a file.
    """
    return profile(captured, inputs, repeats=repeats)


def profile(
    captured: Captured, inputs: Any = None, *, repeats: int = 5, cache: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Measure each operator of a captured step, unless a cache knows it.

    Buffers and the random state are preserved. On one thread of the CPU, CPU time counts, which other programs do not
    change.

    Parameters
    ----------
    captured : Captured
    inputs : (args, kwargs), optional
        As for `execute`.
    repeats : int
        Steps in which operators are timed, after a first one; the median counts.
    cache : path, optional
        A folder with a file for each device, PyTorch release and number of threads. An operator with the same
        arguments, shapes and types is measured once.

    Returns
    -------
    dict
        A document for `Captured.instance(costs=...)`, or to be written to a file.
    """
    given = given_tensors(captured, inputs)
    check_data(given)
    device = next((tensor.device for tensor in given if isinstance(tensor, torch.Tensor)), torch.device("cpu"))
    path = None if cache is None else Path(cache) / _file_name(device)
    known: Found = {}
    if path is not None and path.exists():
        known = dict(read_costs(str(path)).measured)
    wanted = set(_keys(captured))
    found = {key: known[key] for key in wanted & known.keys()}
    if len(found) < len(wanted):
        with unseen():  # of a compiler that is at work, where nothing would really run
            found = _measured(captured, given, repeats, found)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, [json.dumps(costs_document(str(device), known | found), indent=1), "\n"])
    return costs_document(str(device), dict(sorted(found.items())))


def costs_of(
    captured: Captured,
    costs: str | Costs | Mapping[str, Any] | None,
    cache: str | os.PathLike[str] | None = None,
) -> Costs:
    """Read costs, or measure them once for a captured step."""
    if costs != MEASURE:
        return read_costs(costs)
    if captured.measured is None:
        captured.measured = read_costs(profile(captured, cache=cache))
    return captured.measured


def _file_name(device: Any) -> str:
    """Return the name of a cache's file for a device."""
    model = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{_processor()} {torch.get_num_threads()}"
    said = f"{device.type} {model} {torch.__version__}"
    return f"costs-{device.type}-{hashlib.sha256(said.encode()).hexdigest()[:16]}.json"


def _processor() -> str:
    """Return the model name of the processor that the system reports."""
    import platform

    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return model or platform.processor() or platform.machine()


def _like(tensor: Any) -> Any:
    """Return a real tensor in place of one that was traced."""
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _keys(captured: Captured) -> Iterator[str]:
    """Yield the keys of all operators of a step."""
    for task in captured.joint.tasks.values():
        node = captured.joint.nodes.get(task.node)
        if node is not None and not node.collective:
            yield key_of(node, from_mask=task.from_mask)


def _measured(captured: Captured, given: list[Any], repeats: int, known: Found) -> Found:
    names = [node.name for node in captured.recording.nodes if node.role is Role.INPUT]
    written = {name for node in captured.recording.nodes for name in node.mutates}
    given = [tensor.clone() if name in written else tensor for name, tensor in zip(names, given, strict=True)]
    stopwatch = _Stopwatch(captured, given, known)
    events = events_of(captured, schedule_of(captured.instance(), captured.joint.keep_all))
    with torch.random.fork_rng():
        for _ in range(1 + repeats):
            stopwatch.measure(events)
    return stopwatch.found()


class _Stopwatch(Interpreter):
    """Runs steps. The first one finds the workspace of each operator, the others their times.

    An operator is timed within the step, where caches and free memory are as in training. In a separate loop, new pages
    of memory would count each time.
    """

    def __init__(self, captured: Captured, given: list[Any], known: Found) -> None:
        super().__init__(captured, given)
        self.known = known
        self.workspace: dict[str, int] = {}
        self.samples: dict[str, list[float]] = {}
        self.from_mask = {task.node for task in captured.joint.tasks.values() if task.from_mask}
        self.first = True
        self._running = ""
        self._taken = 0.0

    def found(self) -> Found:
        """Return time and workspace of each operator."""
        measured = {key: (microseconds(taken), self.workspace.get(key, 0)) for key, taken in self.samples.items()}
        return {**measured, **self.known}

    def measure(self, events: Sequence[Event]) -> None:
        """Run one step."""
        held = self.held_by_value()
        with torch.no_grad(), torch._C._DisableAutocast():
            self._take_inputs()
            for event in events:
                self.follow(event, held)
        self.there.clear()
        self.first = False

    def tangents(self) -> Iterator[tuple[Node, bool]]:
        """Yield all tangents as 1: a graph without a loss is measured as well."""
        return ((node, True) for node in self.captured.recording.nodes if node.role is Role.TANGENT)

    def follow(self, event: Any, held: Mapping[str, list[str]]) -> None:
        """Run and drop as one event says; freeing memory is a part of an operator's time."""
        task = None if event.task is None else self.captured.joint.tasks[event.task]
        node = None if task is None else self.captured.joint.nodes.get(task.node)
        if task is not None and node is not None:
            if self.first and not node.collective:
                key = key_of(node)
                if key not in self.workspace and key not in self.known:
                    self.made(node.name, {})  # memory that a kernel keeps after its first call is not workspace
                    self.workspace[key] = workspace_of(lambda: self.made(node.name, {}))
            self._running = node.name
        if task is not None:
            self.step(task)
        taken = self._taken
        if node is not None and not self.first and node.name in self.from_mask:
            self._measure_from_mask(node)
        begin = clock()
        super().follow(Event(None, event.drop), held)
        if node is not None and not self.first and not node.collective:
            self.samples.setdefault(key_of(node), []).append(taken + clock() - begin)

    def made(self, name: str, views: dict[str, Any]) -> Any:
        """Return the result of a node's operator, and time the operator of the running task.

        Collectives do not run, since other processes may not measure at this time.
        """
        node = self.captured.joint.nodes[name]
        if node.collective:
            return pytree.tree_map_only(torch.Tensor, _like, self.captured.by_name[name].meta["val"])
        if node.operator == WAIT:
            return self._tensor(node.inputs[0], views)
        if name != self._running:
            return super().made(name, views)
        call = self.operation(name, views)
        begin = clock()
        returned = call()
        self._taken = clock() - begin
        return returned

    def _measure_from_mask(self, node: Node) -> None:
        """Measure dropout from its mask, which has just been drawn."""
        read, mask, _ = self.captured.joint.mask_parts(node.name)
        operands = self._tensor(read, {}), self._tensor(mask, {}), mask_scale(self.captured, read, node.name)
        begin = clock()
        from_mask(*operands)
        self.samples.setdefault(key_of(node, from_mask=True), []).append(clock() - begin)


__all__ = ["MEASURE", "Costs", "costs_of", "measure", "profile", "read_costs"]
