"""Residents of a memory while one step of a schedule runs, largest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from remat.graph.machine import Machine, Memory
from remat.graph.taskgraph import TaskGraph
from remat.report.views.kinds import REPLACED, STATIC, WORKSPACE, in_order
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.solving.result import Result
from remat.verifier import Report


@dataclass(frozen=True, slots=True)
class Resident:
    """An occupant of memory: a value (with its module, stage or layer), the workspace of a run, or static memory.

    `term` is the kind of training memory (see `remat.report.views.kinds.Kind.term`).
    """

    name: str
    size: int
    module: str = ""
    term: str = ""


def fullest_memory(result: Result) -> str:
    """Return the memory that is fullest at its peak, by share of capacity, or by bytes without capacities."""
    assert result.report is not None
    peaks = {memory.name: result.report.peaks[memory.name].size for memory in result.machine.memories}

    def fullness(memory: Memory) -> tuple[bool, float, int]:
        size = peaks[memory.name]
        limited = memory.capacity is not None and size > 0
        return limited, size / max(memory.capacity or 1, 1) if limited else 0.0, size

    return max(result.machine.memories, key=fullness).name  # the first of equals


def residents_at(
    graph: TaskGraph, machine: Machine, steps: Steps, report: Report, *, memory: int, step: int | None
) -> list[Resident]:
    """Return the residents of a memory just after a step has begun, largest first.

    Parameters
    ----------
    graph, machine, steps, report
        A verified schedule: `steps` with start times, and its report.
    memory : int
        Index of the memory.
    step : int or None
        Index of the step; None is the time before the first one.

    Returns
    -------
    list of Resident
        Sizes that add up to the verified use at that step, except where a value is just being replaced by a new
        copy, a part of it has been moved, or an in-place task reuses bytes: then the difference is an entry of its
        own. O(steps before it).
    """
    held = _initially(graph, machine, memory)
    workspace: dict[str, int] = {}
    if step is not None:
        _replay(graph, machine, steps, report, memory, step, held, workspace)
    listed = [
        Resident(graph.values[value], size, graph.value_module(value), graph.term(value))
        for value, size in held.items()
        if size
    ]
    listed += [Resident(f"workspace of {task}", size, term=WORKSPACE) for task, size in workspace.items() if size]
    if static := graph.static_bytes(machine, memory):
        listed.append(Resident(STATIC, static, term=STATIC))
    total = report.peaks[machine.memories[memory].name].size
    if step == report.peaks[machine.memories[memory].name].step and total != sum(r.size for r in listed):
        rest = total - sum(resident.size for resident in listed)
        listed.append(Resident("being replaced, moved or reused", rest, term=REPLACED))
    return sorted(listed, key=lambda resident: (-resident.size, resident.name))


def sizes_by_term(residents: Iterable[Resident]) -> dict[str, int]:
    """Return the bytes of each kind of training memory, in the order of tables; they add up to the residents' bytes.

    Unlike the kinds of stays (see `composition_of`), they are also known for schedules that break rules.
    """
    found: dict[str, int] = {}
    for resident in residents:
        found[resident.term] = found.get(resident.term, 0) + resident.size
    return in_order(found)


def _initially(graph: TaskGraph, machine: Machine, memory: int) -> dict[int, int]:
    name, first = machine.memories[memory].name, machine.memories[0].name
    return {place.value: int(graph.size[place.value]) for place in graph.inputs if (place.memory or first) == name}


def _replay(
    graph: TaskGraph,
    machine: Machine,
    steps: Steps,
    report: Report,
    memory: int,
    step: int,
    held: dict[int, int],
    workspace: dict[str, int],
) -> None:
    """Play what has begun by the time of a step, and free what has ended by then."""
    now = report.start[step]
    near = 1e-9 * float(report.makespan) if report.start.dtype.kind == "f" else 0
    begun = [
        k for k in range(len(steps)) if report.start[k] < now - near or (k <= step and report.start[k] <= now + near)
    ]
    ended = [k for k in begun if k != step and report.end[k] <= now + near]
    events = [(float(report.start[k]), 1, k, True) for k in begun]
    events += [(float(report.end[k]), 0 if report.end[k] > report.start[k] else 1, k, False) for k in ended]
    # At one instant what ends frees first; a step of no length begins and ends at its place in the list.
    for _, _, k, begins in sorted(events, key=lambda event: (event[0], event[1], event[2], not event[3])):
        if begins:
            _begin(graph, machine, steps, k, memory, held, workspace)
        else:
            _end(graph, machine, steps, k, memory, held, workspace)


def _memory_of(machine: Machine, steps: Steps, k: int) -> int:
    on = [] if steps.on is None else steps.on[k].tolist()
    return machine.processors[on[0] if on else 0].memory


def _begin(
    graph: TaskGraph,
    machine: Machine,
    steps: Steps,
    k: int,
    memory: int,
    held: dict[int, int],
    workspace: dict[str, int],
) -> None:
    item = int(steps.item[k])
    if steps.kind[k] == StepKind.RUN and _memory_of(machine, steps, k) == memory:
        for value in graph.writes[item].tolist():
            held[value] = int(graph.size[value])
        workspace[graph.described(item)] = int(graph.workspace[item])
    elif steps.kind[k] == StepKind.COPY and steps.target[k] == memory:
        amount = int(graph.size[item]) if steps.amount[k] == WHOLE else int(steps.amount[k])
        held[item] = min(int(graph.size[item]), (held.get(item, 0) if steps.amount[k] != WHOLE else 0) + amount)


def _end(
    graph: TaskGraph,
    machine: Machine,
    steps: Steps,
    k: int,
    memory: int,
    held: dict[int, int],
    workspace: dict[str, int],
) -> None:
    item = int(steps.item[k])
    if steps.kind[k] == StepKind.RUN:
        if _memory_of(machine, steps, k) != memory:
            return
        workspace.pop(graph.described(item), None)
    elif steps.source[k] != memory:
        return
    elif steps.kind[k] == StepKind.COPY and steps.amount[k] != WHOLE:
        held[item] = held.get(item, 0) - int(steps.amount[k])
        return
    for value in steps.drop[k].tolist():
        held.pop(value, None)
