"""Frontier-advancing schedules: the class of Checkmate's schedules, for any task graph in one memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from remat.plugin import Number, Problem, reference_order, unread_tasks

FRONTIER = "frontier-advancing schedules of the reference order"
IMPROVED = "frontier-advancing schedules of the improved order"


@dataclass(frozen=True)
class Frontier:
    """The tasks that may run, by position in the order, and the stages in which they may.

    A stage ends with the first run of a task that every schedule needs. Before it, any task of an earlier position may
    run once, in the order of the positions. After the last of these stages, another one allows reruns for outputs.

    Attributes
    ----------
    tasks : list of int
        The graph's task at each position.
    end : list of int
        The last position of each stage.
    terminal : list of bool
        Whether a stage's last task must run in it; false for the final stage.
    first, last : list of int
        For each position, the first and the last stage in which its task may run.
    forced : list of bool
        Whether a position's task must run in its first stage.
    single : list of bool
        Whether it may run only once.
    reads, writes : list of lists of int
        Values that each position's task reads and writes (once each), without pinned and useless ones.
    time : list of numbers
    again : list of numbers
        Cost of a rerun; 0 if no task reads its outputs, since the previous run is then omitted.
    unread_until : list of int
        For tasks that every schedule runs: the last stage in which a rerun precedes every read of their outputs. A
        rerun until then replaces the previous run, and costs nothing.
    written : list of int
        Bytes that a run writes, including useless and pinned values.
    workspace : list of int
    in_place : list of bool
    size : list of int
        Bytes of each value of the graph.
    makers : list of lists of int
        Positions that write each value, ascending; empty for values that are left out.
    users : list of lists of int
        Positions that read each value, ascending.
    needed_until : list of int
        The last stage in which each value may be useful; the number of stages for outputs; -1 for useless values.
    inputs, outputs : frozenset of int
        Values resident at the start, and values that must be at the end; without pinned ones.
    fixed : int
        Bytes resident throughout: static memory and pinned inputs.
    start : int
        Bytes resident at the start.
    base_time : int or float
        Time of the forced runs.
    """

    tasks: list[int]
    end: list[int]
    terminal: list[bool]
    first: list[int]
    last: list[int]
    forced: list[bool]
    single: list[bool]
    reads: list[list[int]]
    writes: list[list[int]]
    time: list[Number]
    again: list[Number]
    unread_until: list[int]
    written: list[int]
    workspace: list[int]
    in_place: list[bool]
    size: list[int]
    makers: list[list[int]]
    users: list[list[int]]
    needed_until: list[int]
    inputs: frozenset[int]
    outputs: frozenset[int]
    fixed: int
    start: int
    base_time: Number

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.end)

    @cached_property
    def slots(self) -> int:
        """Number of pairs (stage, position) in which a task may run."""
        windows = zip(self.first, self.last, strict=True)
        return sum(
            max(0, last - first + 1)
            for position, (first, last) in enumerate(windows)
            if self.end and position <= self.end[first]
        )

    def rerun_cost(self, stage: int, position: int) -> Number:
        """Return the cost of a rerun in a stage; 0 if the previous run is then omitted."""
        return 0 if stage <= self.unread_until[position] else self.again[position]

    def may_run(self, stage: int, position: int) -> bool:
        """Whether a position's task may run in a stage."""
        return self.first[position] <= stage <= self.last[position] and position <= self.end[stage]

    def runs_of(self, chosen: Iterable[tuple[int, int]]) -> list[int]:
        """Return the tasks of runs (stage, position), in order; forced runs are added."""
        every = set(chosen)
        every.update((self.first[position], position) for position, must in enumerate(self.forced) if must)
        return [self.tasks[position] for _, position in sorted(every)]


def frontier(problem: Problem, order: Sequence[int] | None = None) -> Frontier:
    """Order the tasks and determine the stages in which each may run.

    Parameters
    ----------
    problem : Problem
    order : sequence of int, optional
        A topological order of the tasks in `problem.needed.once`; default: the reference order.

    Notes
    -----
    Tasks of the order keep it. The others are alternatives, and take the position at which the order has computed their
    inputs. A value is useful while one of its readers may still run, and a run may be repeated while one of its values
    is useful. O(tasks * graph) in the worst case.
    """
    graph, machine = problem.graph, problem.machine
    own = machine.processors[0].memory
    home, default = machine.memories[own].name, machine.memories[0].name
    here = {place.value for place in graph.inputs if (place.memory or default) == home}
    pinned = set(graph.pinned) & here
    outputs = {place.value for place in graph.outputs if (place.memory or default) == home} - pinned
    size: list[int] = graph.size.tolist()
    reads = [list(dict.fromkeys(row)) for row in graph.reads.to_lists()]
    writes = [list(dict.fromkeys(row)) for row in graph.writes.to_lists()]
    must = (problem.needed.forced | graph.once).tolist()
    listed: list[int] = reference_order(graph, problem.needed.once | graph.once).tolist()
    every = _order(listed if order is None else order, reads, writes, here)
    useful_values, useful_tasks = _useful(every, reads, writes, must, outputs)
    tasks = [task for task in every if useful_tasks[task]]
    end = [position for position, task in enumerate(tasks) if must[task]]
    terminal = [True] * len(end)
    if outputs:
        end.append(len(tasks) - 1)
        terminal.append(False)
    first, stage = [], 0
    for position in range(len(tasks)):
        while stage < len(end) - 1 and end[stage] < position:
            stage += 1
        first.append(stage)
    read_rows = [[value for value in reads[task] if value not in pinned] for task in tasks]
    write_rows = [[value for value in writes[task] if value in useful_values and value not in pinned] for task in tasks]
    makers: list[list[int]] = [[] for _ in size]
    users: list[list[int]] = [[] for _ in size]
    for position in range(len(tasks)):
        for value in write_rows[position]:
            makers[value].append(position)
        for value in read_rows[position]:
            users[value].append(position)
    once = (graph.once | ~graph.recomputable).tolist()
    forced, single = [must[task] for task in tasks], [once[task] for task in tasks]
    last, until = _windows(first, forced, single, write_rows, users, outputs, len(end))
    time, unread = graph.time.tolist(), unread_tasks(graph).tolist()
    return Frontier(
        tasks=tasks,
        end=end,
        terminal=terminal,
        first=first,
        last=last,
        forced=forced,
        single=single,
        reads=read_rows,
        writes=write_rows,
        time=[time[task] for task in tasks],
        again=[0 if unread[task] else time[task] for task in tasks],
        unread_until=_unread_until(first, forced, write_rows, users, len(end)),
        written=[sum(size[value] for value in writes[task]) for task in tasks],
        workspace=graph.workspace[tasks].tolist(),
        in_place=graph.in_place[tasks].tolist(),
        size=size,
        makers=makers,
        users=users,
        needed_until=until,
        inputs=frozenset(here - pinned),
        outputs=frozenset(outputs),
        fixed=(graph.static_memory if own == 0 else 0) + sum(size[value] for value in pinned),
        start=(graph.static_memory if own == 0 else 0) + sum(size[value] for value in here),
        base_time=sum(time[task] for task in tasks if must[task]),
    )


def _order(sequence: Sequence[int], reads: list[list[int]], writes: list[list[int]], here: set[int]) -> list[int]:
    """Return the tasks of the sequence, each followed by all other tasks that can then run.

    A task outside the sequence can run when the sequence has computed its inputs; inputs that only other such tasks
    compute may come from them. Earlier, it would precede runs that it has to follow in the same stage.
    """
    chosen = {value for task in sequence for value in writes[task]} - here
    listed = set(sequence)
    missing = [sum(value not in here for value in row) for row in reads]
    waiting: dict[int, list[int]] = {}
    for task, row in enumerate(reads):
        for value in row:
            if value not in here and task not in listed:
                waiting.setdefault(value, []).append(task)
    ready = [task for task, count in enumerate(missing) if count == 0 and task not in listed]
    made = set(here)
    order: list[int] = []

    def run(task: int) -> None:
        order.append(task)
        for value in writes[task]:
            if value not in made and (task in listed or value not in chosen):
                made.add(value)
                for reader in waiting.get(value, ()):
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        heapq.heappush(ready, reader)

    for following in [*sequence, -1]:
        while ready:
            run(heapq.heappop(ready))
        if following >= 0:
            run(following)
    return order


def _useful(
    order: list[int], reads: list[list[int]], writes: list[list[int]], must: list[bool], outputs: set[int]
) -> tuple[set[int], list[bool]]:
    """Return the values and tasks that needed tasks and outputs may use."""
    values, tasks = set(outputs), list(must)
    for task, wanted in enumerate(must):
        if wanted:
            values.update(reads[task])
    changed = True
    while changed:
        changed = False
        for task in reversed(order):
            if not tasks[task] and any(value in values for value in writes[task]):
                tasks[task] = changed = True
                values.update(reads[task])
    return values, tasks


def _unread_until(
    first: list[int], forced: list[bool], writes: list[list[int]], users: list[list[int]], stages: int
) -> list[int]:
    """Return `Frontier.unread_until`; -1 for optional runs, whose time always counts."""
    return [
        min((first[reader] for value in row for reader in users[value]), default=stages) if must else -1
        for must, row in zip(forced, writes, strict=True)
    ]


def _windows(
    first: list[int],
    forced: list[bool],
    single: list[bool],
    writes: list[list[int]],
    users: list[list[int]],
    outputs: set[int],
    stages: int,
) -> tuple[list[int], list[int]]:
    """Return the last useful stage of each position's task and of each value, by iterating to the fixed point."""
    last = [stage if must else -1 for stage, must in zip(first, forced, strict=True)]
    until = [stages if value in outputs else -1 for value in range(len(users))]
    changed = True
    while changed:
        changed = False
        for position in reversed(range(len(first))):
            for value in writes[position]:
                if value not in outputs:
                    until[value] = max((last[user] for user in users[value]), default=-1)
            if forced[position] and single[position]:
                continue
            latest = max((until[value] for value in writes[position]), default=-1)
            latest = max(last[position], min(latest, stages - 1))
            if latest > last[position]:
                last[position], changed = latest, True
    for value, row in enumerate(users):  # inputs, which no task may write
        if value not in outputs:
            until[value] = max((last[user] for user in row), default=-1)
    return last, until
