"""Orders before they are placed: every operation is there, once, and none waits for itself (rule `deadlock`).

Independent of placement, which runs the orders: here nothing has a time. An operation comes after the one before it on
its device, and after those that make what it reads; if these relations have a cycle, no times can satisfy them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from remat.graph.taskgraph import TaskGraph
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


def _check_complete(graph: TaskGraph, tasks: PipelineTasks, orders: Orders, findings: Findings) -> None:
    """Every task runs once; an operation that is there is one that its layers have."""
    count: Counter[int] = Counter()
    for operations in orders.lists:
        for operation in operations:
            mine = tasks.of(operation, orders.stages[operation.stage].layers)
            if not mine or (operation.phase is Phase.BW and not tasks.of(_half(operation), _layers(orders, operation))):
                message = (
                    f"{operation}: no layer of stage {operation.stage} has a backward in two halves (`weight_time`)"
                )
                findings.add(None, "bad-step", message)
            count.update(mine)
    for task, times in count.items():
        if times > 1:
            findings.add(None, "bad-step", f"{graph.tasks[task]} is run by {times} operations")
    missing = [task for task in range(len(graph.tasks)) if task not in count]
    for task in missing:
        findings.add(None, "required-missing", f"no operation runs {graph.tasks[task]}")


def _half(operation: Pass) -> Pass:
    return operation._replace(phase=Phase.W)


def _layers(orders: Orders, operation: Pass) -> tuple[int, ...]:
    return orders.stages[operation.stage].layers


def _check_waits(
    graph: TaskGraph, tasks: PipelineTasks, orders: Orders, devices: Sequence[str], findings: Findings
) -> None:
    """Remove operations that wait for nobody, until none is left: what cannot be removed has a cycle."""
    flat = [(device, operation) for device, operations in enumerate(orders.lists) for operation in operations]
    parts = [tasks.of(operation, orders.stages[operation.stage].layers) for _, operation in flat]
    owner = [-1] * len(graph.tasks)
    for number, mine in enumerate(parts):
        for task in mine:
            owner[task] = number
    makers: list[int] = [-1] * len(graph.values)
    for value, task in zip(graph.writes.items.tolist(), graph.writes.rows.tolist(), strict=True):
        makers[value] = owner[task]
    reads = graph.reads.to_lists()
    before: list[set[int]] = []
    for number, mine in enumerate(parts):
        needs = {makers[value] for task in mine for value in reads[task]} - {-1, number}
        if number and flat[number - 1][0] == flat[number][0]:
            needs.add(number - 1)
        before.append(needs)
    after: list[list[int]] = [[] for _ in flat]
    left = [len(needs) for needs in before]
    for number, needs in enumerate(before):
        for other in needs:
            after[other].append(number)
    ready = [number for number, needs in enumerate(left) if needs == 0]
    done = [False] * len(flat)
    while ready:
        number = ready.pop()
        done[number] = True
        for other in after[number]:
            left[other] -= 1
            if left[other] == 0:
                ready.append(other)
    if all(done):
        return
    cycle = _shortest_cycle_through([k for k, is_done in enumerate(done) if not is_done], before, done)
    shown = [f"{flat[number][1]} on {devices[flat[number][0]]}" for number in cycle]
    if len(shown) > MOST_SHOWN:
        shown = [*shown[: MOST_SHOWN - 1], f"({len(shown) - MOST_SHOWN + 1} more)"]
    findings.add(None, "deadlock", f"{' waits for '.join([*shown, shown[0]])}")


def _shortest_cycle_through(stuck: list[int], before: list[set[int]], done: list[bool]) -> list[int]:
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
