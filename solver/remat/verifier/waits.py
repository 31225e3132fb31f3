"""Orders before they are placed: every operation is there, once, and none waits for itself (rule `deadlock`).

Independent of placement, which runs the orders: here nothing has a time. An operation comes after the one before it on
its device, and after those that make what it reads; if these relations have a cycle, no times can satisfy them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remat.graph.taskgraph import Ragged, TaskGraph
from remat.schedule.orders import Orders, Pass, Phase, PipelineTasks
from remat.verifier.findings import Findings
from remat.verifier.report import Violation

MOST_SHOWN = 12


def check_orders(
    graph: TaskGraph, tasks: PipelineTasks, orders: Orders, devices: Sequence[str], copies: int
) -> tuple[Violation, ...]:
    """Check the orders of a pipeline.

    Parameters
    ----------
    graph : TaskGraph
    tasks : PipelineTasks
        Which tasks an operation is.
    orders : Orders
    devices : sequence of str
        Names of the processors, for the messages.
    copies : int
        Devices on which a layer may lie at the same time.

    Returns
    -------
    tuple of Violation
        Rules `bad-step` (operations that are missing or there twice, halves that the layers do not have),
        `initial-placement` (a layer on too many devices) and `deadlock`; empty if the orders can be run.

    Notes
    -----
    O(operations + accesses).
    """
    findings = Findings()
    _check_places(tasks, orders, devices, copies, findings)
    _check_pairs(orders, findings)
    _check_complete(graph, tasks, orders, findings)
    if not findings:
        _check_waits(graph, tasks, orders, devices, findings)
    return findings.sorted()


def _check_places(
    tasks: PipelineTasks, orders: Orders, devices: Sequence[str], copies: int, findings: Findings
) -> None:
    homes: dict[int, set[int]] = {}
    for stage in orders.stages:
        for layer in stage.layers:
            homes.setdefault(layer, set()).add(stage.device)
    for layer in range(tasks.layers):
        where = homes.get(layer, set())
        if len(where) > copies:
            names = ", ".join(devices[device] for device in sorted(where))
            message = f"layer {layer + 1} lies on {len(where)} devices ({names}); `copies` allows {copies}"
            findings.add(None, "initial-placement", message)
        elif not where:
            findings.add(None, "initial-placement", f"layer {layer + 1} is in no stage")


def _check_pairs(orders: Orders, findings: Findings) -> None:
    """Two operations at once are a forward and then a backward."""
    _, phase, stage, batch = orders.columns.tolist()
    for unit in orders.units.to_lists():
        if len(unit) > 1:
            one, *others = (Pass(Phase(phase[k]), stage[k], batch[k]) for k in unit)
            if len(others) > 1 or one.phase is not Phase.F or others[0].phase not in (Phase.B, Phase.BW):
                named = "&".join(map(str, (one, *others)))
                findings.add(None, "bad-step", f"{named}: a forward and a backward go on at once, nothing else")


def _check_complete(graph: TaskGraph, tasks: PipelineTasks, orders: Orders, findings: Findings) -> None:
    """Every task runs once; an operation that is there is one that its layers have."""
    _, phase, stage, _ = orders.columns
    codes, first = np.unique(stage * len(Phase) + phase, return_index=True)
    for code, number in zip(codes.tolist(), first.tolist(), strict=True):
        own, kind = divmod(code, len(Phase))
        if kind in (Phase.W, Phase.BW) and not tasks.of(Pass(Phase.W, own, 0), orders.stages[own].layers):
            name = f"{Phase(kind).name}{own}.{int(orders.columns[3][number])}"
            message = f"{name}: no layer of stage {own} has a backward in two halves (`weight_time`)"
            findings.add(None, "bad-step", message)
    count = np.bincount(tasks.of_all(orders).items, minlength=len(graph.tasks))
    for task in np.flatnonzero(count > 1).tolist():
        findings.add(None, "bad-step", f"{graph.described(task)} is run by {count[task]} operations")
    for task in np.flatnonzero(count == 0).tolist():
        findings.add(None, "required-missing", f"no operation runs {graph.described(task)}")


def _check_waits(
    graph: TaskGraph, tasks: PipelineTasks, orders: Orders, devices: Sequence[str], findings: Findings
) -> None:
    """Remove operations that wait for nobody, until none is left: what cannot be removed has a cycle."""
    parts = tasks.of_all(orders)
    units = orders.units
    device = orders.columns[0, units.start[:-1]]
    count = len(device)
    owner = np.full(len(graph.tasks), -1, dtype=np.int64)
    owner[parts.items] = parts.rows
    maker = np.full(len(graph.values), -1, dtype=np.int64)
    maker[graph.writes.items] = owner[graph.writes.rows]
    reader, wanted = owner[graph.reads.rows], maker[graph.reads.items]
    real = (wanted >= 0) & (wanted != reader)
    # Of two at once, neither can wait for the other: they would wait for themselves.
    reader, wanted = units.rows[reader], units.rows[wanted]
    next_up = np.flatnonzero(device[1:] == device[:-1]) + 1
    edges = np.concatenate((wanted[real] * count + reader[real], (next_up - 1) * count + next_up))
    before, after = np.divmod(np.unique(edges), count)
    following = Ragged(np.searchsorted(before, np.arange(count + 1)), after).to_lists()
    left = np.bincount(after, minlength=count).tolist()
    ready = [number for number, needs in enumerate(left) if needs == 0]
    for number in ready:
        for other in following[number]:
            left[other] -= 1
            if left[other] == 0:
                ready.append(other)
    if len(ready) == count:
        return
    done = [needs == 0 for needs in left]
    needs = Ragged.from_lists(following).transposed(count).to_lists()
    cycle = _shortest_cycle_through([k for k, is_done in enumerate(done) if not is_done], needs, done)
    shown = []
    for number in cycle:
        own = (orders.columns[1:, int(k)].tolist() for k in units[number])
        named = "&".join(str(Pass(Phase(phase), stage, batch)) for phase, stage, batch in own)
        shown.append(f"{named} on {devices[int(device[number])]}")
    if len(shown) > MOST_SHOWN:
        shown = [*shown[: MOST_SHOWN - 1], f"({len(shown) - MOST_SHOWN + 1} more)"]
    findings.add(None, "deadlock", f"{' waits for '.join([*shown, shown[0]])}")


def _shortest_cycle_through(stuck: list[int], before: list[list[int]], done: list[bool]) -> list[int]:
    """Return a cycle of operations that wait for each other: a shortest one through some operation of a cycle."""
    # Everyone who is stuck waits for somebody who is: following that leads into a cycle.
    at, seen = stuck[0], set[int]()
    while at not in seen:
        seen.add(at)
        at = next(other for other in sorted(before[at]) if not done[other])
    origin = at
    came: dict[int, int] = {}
    front = [origin]
    while front:
        following: list[int] = []
        for number in front:
            for other in sorted(before[number]):
                if other == origin:
                    path = [number]
                    while path[-1] != origin:
                        path.append(came[path[-1]])
                    return path[::-1]
                if not done[other] and other not in came:
                    came[other] = number
                    following.append(other)
        front = following
    raise AssertionError("who is met twice lies on a cycle")
