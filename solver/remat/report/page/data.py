"""A schedule as columns of numbers, packed for a page.

A column holds integers, as differences or unchanged, in zigzag coding. Each takes as many bytes as the largest
needs: all lowest bytes come first, then all second bytes, and so on. All columns and names are concatenated and
compressed as one zlib stream. A schedule of 10^6 unequal steps takes 22 MB, one of 10^4 a quarter of a megabyte.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from remat.graph.machine import Machine
from remat.graph.names import Names, NumberedNames
from remat.graph.taskgraph import IntArray, NumberArray, TaskGraph
from remat.messages import printable
from remat.report.text.readable_names import shown_name, shown_step
from remat.report.views.addresses import address_boxes
from remat.report.views.composition import Composition, Contents, Extra, composition_of, labels_of, static_parts
from remat.report.views.forward_backward import passes_of
from remat.report.views.kinds import STACKED, Kind
from remat.report.views.phases import Phase, phase_labels, shown_phases
from remat.report.views.residents import fullest_memory
from remat.report.views.resources import occupied
from remat.schedule.orders import Phase as Operation
from remat.schedule.steps import StepKind
from remat.solving.result import Result
from remat.units import shown_base
from remat.verifier import Report

MOST_GROUPED = 100_000
"""Steps of a task graph whose bytes are summed by groups of values, too."""

MOST_TICKS = 2**44
"""Times that are no whole numbers are rounded to so many ticks of the makespan."""


OF_OPERATION = {
    Operation.F: Phase.FORWARD,
    Operation.B: Phase.BACKWARD,
    Operation.W: Phase.WEIGHTS,
    Operation.BW: Phase.BACKWARD,
    Operation.R: Phase.RECOMPUTATION,
}
"""Phases by the operations of pipelines."""


@dataclass
class Packed:
    """Columns and texts of a page; `entries` gives their positions in `data`."""

    entries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    data: bytearray = field(default_factory=bytearray)

    def column(self, name: str, values: IntArray, *, differences: bool = False) -> None:
        """Add whole numbers below 2^52."""
        numbers = values.astype(np.int64)
        if differences:
            numbers = np.diff(numbers, prepend=0)
        unsigned = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
        width = max(1, -(-int(unsigned.max(initial=0)).bit_length() // 8))
        planes = unsigned.view(np.uint8).reshape(-1, 8)[:, :width].T
        self._add({"name": name, "count": len(numbers), "width": width, "differences": differences}, planes.tobytes())

    def texts(self, name: str, listed: Iterable[str]) -> None:
        """Add names, without line breaks."""
        whole = "\n".join(listed).encode("utf-8", "replace")
        self._add({"name": name, "bytes": len(whole)}, whole)

    def _add(self, entry: dict[str, Any], data: bytes) -> None:
        self.entries.append(entry)
        self.data += data

    def encoded(self) -> str:
        """Return the data for a page."""
        return base64.b64encode(zlib.compress(bytes(self.data), 6)).decode("ascii")


def pack(result: Result) -> tuple[dict[str, Any], str]:
    """Return the data of a schedule's page: a head, and the columns that it describes.

    Parameters
    ----------
    result : Result
        With a schedule.
    """
    steps, report = result.columns, result.report
    assert steps is not None
    assert report is not None
    found = composition_of(result, grouped=_is_grouped(result))
    packed = Packed()
    ticks = _Ticks(report.start, float(report.makespan))
    start, end = ticks.of(report.start), ticks.of(report.end)
    packed.column("start", start, differences=True)
    packed.column("length", end - start)
    phases = shown_phases(result)
    packed.column("phase", phases)
    packed.column("item", steps.item, differences=True)
    head: dict[str, Any] = {
        "tick": ticks.size,
        "units": {"time": result.units.time, "memory": result.units.memory, "base": shown_base() or 1024},
        "makespan": ticks.one(report.makespan),
        "kinds": [{"label": label, "meaning": kind.meaning} for kind, label in labels_of(result).items()],
        "phases": list(phase_labels(result).values()),
        "used_phases": np.unique(phases).tolist(),
        "copy": int(Phase.COPY),
        "again": int(Phase.RECOMPUTATION),
        "static": int(Kind.STATIC),
        "static_use": ", ".join(static_parts(result)) or labels_of(result)[Kind.STATIC],
        "workspace": int(Kind.WORKSPACE),
        "rows": _rows(result, packed),
        "passes": _passes(result, packed, ticks),
        "groups": _groups(found),
        "memories": [_memory(result, packed, found, k, phases, ticks) for k in range(len(result.machine.memories))],
        "fullest": result.machine.memory_index[fullest_memory(result)],
        "tasks": _names("tasks", result.graph.tasks, packed),
        "values": _names("values", result.graph.values, packed),
        "modules": _modules(result, packed),
    }
    _stays(result, packed, found)
    if found.groups is not None:
        packed.column("group", found.groups.of_value, differences=True)
    packed.column("size", result.graph.size)
    head["columns"] = packed.entries
    return head, packed.encoded()


class _Ticks:
    """Times as integers: unchanged, or in ticks that are a small fraction of the makespan."""

    def __init__(self, times: NumberArray, makespan: float) -> None:
        self._whole = times.dtype.kind == "i"
        self.size = 1.0 if self._whole else (makespan or 1.0) / MOST_TICKS

    def of(self, times: NumberArray) -> IntArray:
        return times if self._whole else np.rint(times / self.size).astype(np.int64)

    def one(self, time: float) -> int:
        return int(time) if self._whole else round(time / self.size)


def _is_grouped(result: Result) -> bool:
    """Whether the page can colour bytes by group, as for task graphs without stages."""
    assert result.columns is not None
    return not isinstance(result.graph.values, NumberedNames) and len(result.columns) <= MOST_GROUPED


def _groups(found: Composition) -> dict[str, Any] | None:
    """Describe the rows that are summed by group: labels, and the rule that separates the groups."""
    if found.groups is None:
        return None
    extra = [row.label for row in Extra]
    labels = [printable(label) for label in found.groups.labels]
    colours = list(found.groups.colours)
    return {"labels": [*labels, *extra], "extra": len(labels), "by": found.groups.by, "colours": colours}


def _rows(result: Result, packed: Packed) -> list[dict[str, Any]]:
    """Add the steps of each processor and channel that is ever busy, in order of their start.

    A channel of a pipeline names the processor that sends on it.
    """
    report, machine = result.report, result.machine
    assert report is not None
    assert result.columns is not None
    step, resource = occupied(result.graph, machine, result.columns)
    lasting = report.end[step] > report.start[step]
    step, resource = step[lasting], resource[lasting]
    order = np.lexsort((step, report.start[step], resource))
    step, resource = step[order], resource[order]
    packed.column("served", step, differences=True)
    processors = len(machine.processors)
    senders = {} if result.orders is None else _senders(machine)
    rows: list[dict[str, Any]] = []
    for index, name in enumerate(machine.resources):
        first, stop = np.searchsorted(resource, [index, index + 1]).tolist()
        if stop > first or index == 0 or (index < processors and result.orders is not None):
            row = {"name": shown_name(name), "first": first, "stop": stop}
            if index >= processors:
                row["kind"] = "channel"
                if name in senders:
                    row["sender"] = senders[name]
            else:
                row["memory"] = machine.processors[index].memory
            rows.append(row)
    return rows


def _senders(machine: Machine) -> dict[str, int]:
    """Return, for each channel, the first processor of the memory that sends on it."""
    first: dict[int, int] = {}
    for index, processor in enumerate(machine.processors):
        first.setdefault(processor.memory, index)
    return {link.channel: first[link.source] for link in machine.links if link.source in first}


def _passes(result: Result, packed: Packed, ticks: _Ticks) -> int:
    """Add the operations of a pipeline, device by device; return their number (0: not a pipeline)."""
    if result.orders is None:
        return 0
    found = passes_of(result)
    order = np.lexsort((found.half, found.start, found.device))
    start, end = ticks.of(found.start[order]), ticks.of(found.end[order])
    packed.column("pass device", found.device[order], differences=True)
    packed.column("pass start", start, differences=True)
    packed.column("pass length", end - start)
    packed.column("pass batch", found.batch[order])
    packed.column("pass half", found.half[order])
    phase = found.phase[order]
    packed.column("pass phase", np.array([OF_OPERATION[one] for one in Operation], dtype=np.int64)[phase])
    packed.column("pass chunk", found.chunk[order])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    pass_, begin, stop = found.recomputed
    sequence = np.lexsort((begin, place[pass_]))
    begin, stop = ticks.of(begin[sequence]), ticks.of(stop[sequence])
    packed.column("again pass", place[pass_[sequence]], differences=True)
    packed.column("again start", begin, differences=True)
    packed.column("again length", stop - begin)
    return len(order)


def _memory(
    result: Result, packed: Packed, found: Composition, index: int, phases: IntArray, ticks: _Ticks
) -> dict[str, Any]:
    assert result.report is not None
    assert result.columns is not None
    contents = found.contents[index]
    memory = result.machine.memories[index]
    peak = result.report.peaks[memory.name]
    used = [int(kind) for kind in STACKED if contents.sizes[kind].any()]
    packed.column(f"at {index}", _events_at(contents.time, result.report), differences=True)
    for kind in used:
        packed.column(f"bytes {index} {kind}", contents.sizes[kind], differences=True)
    head: dict[str, Any] = {
        "name": shown_name(memory.name),
        "capacity": memory.capacity,
        "peak": peak.size,
        **_moments(contents, ticks),
        "static": result.graph.static_bytes(result.machine, index),
        "cause": _cause(result, peak.step, phases),
        "kinds": used,
        "at_peak": {str(int(kind)): size for kind, size in contents.at_peak.items()},
        "addresses": _addresses(result, packed, found, index),
    }
    if found.groups is not None:
        head["groups"] = _grouped(packed, found.grouped[index], index, len(found.groups.labels))
        grouped = found.grouped[index]
        at_peak = grouped.sizes[:, int(np.argmax(grouped.total))].tolist()
        head["groups_at_peak"] = {row: size for row, size in enumerate(at_peak) if size}
    return head


def _moments(contents: Contents, ticks: _Ticks) -> dict[str, int]:
    """Return when a memory is at its peak for the first time, and how often it comes to it."""
    full = contents.total == contents.total.max(initial=0)
    first = np.flatnonzero(full & ~np.concatenate(([False], full[:-1])))
    return {"at": ticks.one(contents.time[first[0]].item()), "moments": len(np.unique(contents.time[first]))}


def _cause(result: Result, step: int | None, phases: IntArray) -> str:
    """Name the step that sets a peak; a pipeline's tasks and copies are named by layer and micro-batch."""
    steps = result.columns
    assert steps is not None
    name = shown_step(result.graph, result.machine, steps, step)
    if result.orders is None or step is None or steps.kind[step] not in (StepKind.RUN, StepKind.COPY):
        return name
    item, copied = int(steps.item[step]), steps.kind[step] == StepKind.COPY
    own = result.graph.values[item] if copied else result.graph.tasks[item]
    match = re.fullmatch(r"([A-Za-z]+)(\d+)\.(\d+)", own)
    if not match:
        return name
    what = f"copy of {match[1]}" if copied else phase_labels(result)[Phase(int(phases[step]))]
    to = f" to {shown_name(result.machine.memories[int(steps.target[step])].name)}" if copied else ""
    return f"{what} of layer {match[2]}, micro-batch {match[3]} ({own}){to}"


def _grouped(packed: Packed, contents: Contents, index: int, labels: int) -> list[int]:
    """Add the bytes of each group at each change; return the groups that occur, static memory first."""
    rows = [labels + Extra.STATIC, *range(labels), labels + Extra.WORKSPACE, labels + Extra.OTHER]
    used = [row for row in rows if contents.sizes[row].any()]
    for row in used:
        packed.column(f"grouped {index} {row}", contents.sizes[row], differences=True)
    return used


def _addresses(result: Result, packed: Packed, found: Composition, index: int) -> dict[str, Any] | None:
    """Add the residencies of a memory that has addresses; return its arena."""
    boxes = address_boxes(result, found.stays, index)
    if boxes is None:
        return None
    steps = len(result.steps)
    packed.column(f"first {index}", boxes.first, differences=True)
    packed.column(f"last {index}", np.where(boxes.last < steps, boxes.last, -1))
    packed.column(f"low {index}", boxes.low)
    packed.column(f"high {index}", boxes.high)
    packed.column(f"kind {index}", boxes.kind)
    packed.column(f"owner {index}", np.where(boxes.value < 0, 2 * boxes.task + 1, 2 * boxes.value))
    blocked = [[0, boxes.static]] if boxes.static else []
    return {"size": boxes.arena.size, "blocked": blocked + [list(pair) for pair in boxes.arena.reserved]}


def _events_at(time: NumberArray, report: Report) -> IntArray:
    """Return for each time a step that starts then, or steps + one that ends then; -1 is before all of them."""
    events = np.concatenate((report.start, report.end))
    if not len(events):
        return np.full(len(time), -1, dtype=np.int64)
    order = np.argsort(events, kind="stable")
    place = np.minimum(np.searchsorted(events, time, sorter=order), len(order) - 1)
    found = order[place]
    return np.where(events[found] == time, found, -1)


def _stays(result: Result, packed: Packed, found: Composition) -> None:
    """Add the stays of values, in the order in which they begin."""
    stays = found.stays
    order = np.lexsort((stays.lives.born, stays.lives.begin))
    lives = stays.lives.of(order)
    packed.column("memory", lives.memory)
    packed.column("value", lives.value, differences=True)
    packed.column("kind", stays.kind[order])
    packed.column("born", lives.born, differences=True)
    packed.column("died", _later(lives.died, lives.born))
    packed.column("last", _later(stays.last[order], lives.born))
    packed.column("uses", stays.uses[order])


def _later(step: IntArray, born: IntArray) -> IntArray:
    """Return twice the distance in the list from another step to each step; 1 for no step (-1)."""
    return np.where(step < 0, 1, 2 * (step - np.maximum(born, 0)))


def _names(name: str, names: Names, packed: Packed) -> dict[str, Any]:
    if isinstance(names, NumberedNames):
        return {"runs": names.runs, "count": len(names)}
    packed.texts(name, map(printable, names))
    return {"count": len(names)}


def _modules_of_values(graph: TaskGraph, of_task: IntArray, known: dict[str, int]) -> IntArray:
    """Return the module of each value's first maker, or reader (as `TaskGraph.value_module`, for all at once)."""
    none = known[""]
    found = np.full(len(graph.values), none, dtype=np.int64)
    for tasks in (graph.readers, graph.producers):
        some = tasks.counts > 0
        found[some] = of_task[tasks.items[tasks.start[:-1][some]]]
    return found


def _modules(result: Result, packed: Packed) -> int:
    """Add the names of modules, stages and layers, and the one of each task; return their number."""
    modules = result.graph.modules
    if modules is None:
        return 0
    known: dict[str, int] = {}
    of_task = np.array([known.setdefault(module, len(known)) for module in modules], dtype=np.int64)
    known.setdefault("", len(known))  # of values that no task makes or reads
    packed.texts("modules", map(printable, known))
    packed.column("module", of_task, differences=True)
    packed.column("value module", _modules_of_values(result.graph, of_task, known), differences=True)
    return len(known)
