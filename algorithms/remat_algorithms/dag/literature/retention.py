"""Retained values after each stage, and the minimal runs for them: shared by the algorithms on task graphs.

The needed tasks in reference order are *stages* 0..n-1; stage t ends with the first run of its task. The matrix S of
Checkmate (Jain et al. 2020) describes a schedule: ``held[t, v]`` states that value v, once computed, may stay resident
on entry to stage t. `Stages.runs` completes it by the minimal R; `Stages.replay` measures the outcome.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import (
    BoolArray,
    Machine,
    Number,
    OptionError,
    Problem,
    Steps,
    TaskGraph,
    reference_order,
    run_in_order,
    useful_runs,
)

MOST_STAGES = 4_000
"""Maximum number of stages: the matrices are quadratic."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A measured list of runs.

    Attributes
    ----------
    steps : Steps
        The runs, each value freed after its last use.
    time : int or float
        Time of all runs, one after the other.
    peak : int
        Bytes in the processor's memory, static memory and inputs included.
    """

    steps: Steps
    time: Number
    peak: int


@dataclass(frozen=True)
class Stages:
    """The needed tasks in an order in which each can run once, and the tasks that may recompute their values.

    Attributes
    ----------
    graph, machine
        As in the problem.
    tasks : list of int
        Task of each stage.
    reads, writes : list of lists of int
        Values of each stage's task.
    maker : list of int
        For each value the stage that produces it; -1 for inputs and values that no stage produces.
    fixed : (values,) bool
        Values that stay resident while any reader remains: inputs, values with several writers, and those whose
        producer may not be repeated.
    rivals : list of lists of int
        For each stage, tasks that produce some of its outputs from some of its reads (its own task among them),
        cheapest first.
    must_run : list of bool
        Stages whose own task runs in any case; others run if one of their outputs is wanted.
    ends : tuple of int
        Values wanted at the end.
    """

    graph: TaskGraph
    machine: Machine
    tasks: list[int]
    reads: list[list[int]]
    writes: list[list[int]]
    maker: list[int]
    fixed: BoolArray
    rivals: list[list[int]]
    must_run: list[bool]
    ends: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tasks)

    @cached_property
    def readers(self) -> list[list[int]]:
        """For each value the stages whose task reads it, ascending."""
        found: list[list[int]] = [[] for _ in range(len(self.graph.values))]
        for stage, values in enumerate(self.reads):
            for value in values:
                found[value].append(stage)
        return found

    @cached_property
    def before(self) -> list[list[int]]:
        """For each stage the earlier stages whose values it reads, ascending."""
        found = []
        latest = [-1] * len(self.graph.values)
        for stage, values in enumerate(self.reads):
            found.append(sorted({latest[value] for value in values} - {-1}))
            for value in self.writes[stage]:
                latest[value] = stage
        return found

    @cached_property
    def size(self) -> list[int]:
        """Bytes of each value."""
        sizes: list[int] = self.graph.size.tolist()
        return sizes

    @cached_property
    def time(self) -> list[Number]:
        """Time of each stage's task."""
        times: list[Number] = self.graph.time[np.array(self.tasks, dtype=np.int64)].tolist()
        return times

    @cached_property
    def capacity(self) -> int | None:
        """The budget: capacity of the processor's memory."""
        return self.machine.memories[self.machine.processors[0].memory].capacity

    def nothing_held(self) -> BoolArray:
        """Return an S of zeros, (stages + 1, values)."""
        return np.zeros((len(self) + 1, len(self.graph.values)), dtype=bool)

    def runs(self, held: BoolArray) -> list[int]:
        """Return the minimal runs for the held values: the minimal R of a given S.

        Going back from the last stage, D[t] are the values wanted on entry to stage t. Stage t must provide its own
        reads and D[t+1]. Of these, values that `held[t]` allows are wanted on entry. All others are computed in the
        stage, and their reads become wanted, too. Held values that no stage wants cost nothing. An optional task runs
        only if one of its outputs is wanted.

        Parameters
        ----------
        held : (stages + 1, values) bool
            Row t: values that may be resident on entry to stage t; the last row is not read.

        Returns
        -------
        list of int
            Tasks, in execution order. O(stages * values).
        """
        wanted = np.zeros(len(self.graph.values), dtype=bool)
        wanted[list(self.ends)] = True
        backwards: list[int] = []
        for stage in range(len(self) - 1, -1, -1):
            own = [value for value in self.writes[stage] if wanted[value]]
            wanted[own] = False
            if own or self.must_run[stage]:
                task = self.tasks[stage] if self.must_run[stage] else self.rival(stage, own)
                backwards.append(task)
                wanted[self.graph.reads[task]] = True
            self._reruns(wanted, held[stage] | self.fixed, backwards)
        return backwards[::-1]

    def _reruns(self, wanted: BoolArray, entering: BoolArray, backwards: list[int]) -> None:
        """Compute in this stage the wanted values that are not resident on entry, latest first."""
        open_values: dict[int, list[int]] = {}
        for value in np.flatnonzero(wanted & ~entering).tolist():
            open_values.setdefault(self.maker[value], []).append(value)
        heap = [-stage for stage in open_values]
        heapq.heapify(heap)
        while heap:
            stage = -heapq.heappop(heap)
            values = open_values.pop(stage)
            wanted[values] = False
            task = self.rival(stage, values)
            backwards.append(task)
            for value in self.graph.reads[task].tolist():
                if not wanted[value]:
                    wanted[value] = True
                    if not entering[value]:
                        maker = self.maker[value]
                        if maker not in open_values:
                            open_values[maker] = []
                            heapq.heappush(heap, -maker)
                        open_values[maker].append(value)

    def rival(self, stage: int, values: Sequence[int]) -> int:
        """Return the cheapest task that produces these outputs of a stage."""
        rivals = self.rivals[stage]
        if len(rivals) > 1:
            for task in rivals:
                if set(values) <= set(self.graph.writes[task].tolist()):
                    return task
        return self.tasks[stage]

    def useful(self, runs: Sequence[int]) -> list[int]:
        """Remove from a schedule the runs all of whose values are dropped unread."""
        return useful_runs(self.graph, list(runs))

    def replay(self, runs: Sequence[int]) -> Replay:
        """Measure a list of runs (O(accesses log accesses)): the peak is exact, reuse in place included."""
        graph, own = self.graph, self.machine.processors[0].memory
        steps = run_in_order(graph, self.machine, np.array(runs, dtype=np.int64))
        first, name = self.machine.memories[0].name, self.machine.memories[own].name
        resident = {place.value for place in graph.inputs if (place.memory or first) == name}
        memory = (graph.static_memory if own == 0 else 0) + sum(self.size[value] for value in resident)
        peak = memory
        time: Number = 0
        for task, drop in zip(runs, steps.drop.to_lists(), strict=True):
            reads, writes, _, workspace, in_place = self._facts[task]
            written = sum(self.size[value] for value in writes)
            reused = sum(self.size[value] for value in drop if value in reads) if in_place else 0
            peak = max(peak, memory + max(0, written - reused) + workspace)
            memory += written - sum(self.size[value] for value in writes if value in resident)
            resident.update(writes)
            memory -= sum(self.size[value] for value in drop)
            resident.difference_update(drop)
            time += self._facts[task][2]
        return Replay(steps, time, peak)

    @cached_property
    def _facts(self) -> list[tuple[frozenset[int], list[int], Number, int, bool]]:
        graph = self.graph
        columns = (graph.writes.to_lists(), graph.time.tolist(), graph.workspace.tolist(), graph.in_place.tolist())
        return [
            (frozenset(reads), writes, time, workspace, in_place)
            for reads, writes, time, workspace, in_place in zip(graph.reads.to_lists(), *columns, strict=True)
        ]


def stages_of(problem: Problem, name: str, order: Sequence[int] | None = None, *, most: int = MOST_STAGES) -> Stages:
    """Return the stages of a problem.

    Parameters
    ----------
    problem : Problem
    name : str
        The algorithm, for the error.
    order : sequence of int, optional
        The needed tasks in another topological order; default: the reference order.
    most : int
        Maximum number of needed tasks; callers without matrices allow more.

    Raises
    ------
    remat.OptionError
        If there are more needed tasks.
    """
    graph, needed = problem.graph, problem.needed.once
    count = int(needed.sum())
    if count > most:
        raise OptionError(f"{name} takes up to {most} tasks; {count} must run here", argument="algorithm")
    tasks = reference_order(graph, needed).tolist() if order is None else list(order)
    all_reads, all_writes = graph.reads.to_lists(), graph.writes.to_lists()
    maker = [-1] * len(graph.values)
    several = np.zeros(len(graph.values), dtype=bool)
    for place in graph.inputs:
        several[place.value] = True
    for stage, task in enumerate(tasks):
        for value in all_writes[task]:
            if maker[value] >= 0:
                several[value] = True
            maker[value] = stage
    repeatable = (graph.recomputable & ~graph.once).tolist()
    fixed = several.copy()
    latest = [-1] * len(graph.values)
    for stage, task in enumerate(tasks):
        # A run reads only the last version of a value; an earlier version may be gone when the run is repeated.
        stale = any(latest[value] != maker[value] for value in all_reads[task])
        for value in all_writes[task]:
            latest[value] = stage
        if not repeatable[task] or stale or any(several[value] for value in all_writes[task]):
            fixed[all_writes[task]] = True
    return Stages(
        graph=graph,
        machine=problem.machine,
        tasks=tasks,
        reads=[all_reads[task] for task in tasks],
        writes=[all_writes[task] for task in tasks],
        maker=maker,
        fixed=fixed,
        rivals=[_rivals(graph, task, repeatable, several, all_reads, all_writes) for task in tasks],
        must_run=(graph.required | graph.once)[np.array(tasks, dtype=np.int64)].tolist(),
        ends=tuple(sorted({place.value for place in graph.outputs if maker[place.value] >= 0})),
    )


def _rivals(
    graph: TaskGraph,
    task: int,
    repeatable: list[bool],
    several: BoolArray,
    all_reads: list[list[int]],
    all_writes: list[list[int]],
) -> list[int]:
    """Return the tasks that may replace a task, and the task itself, cheapest first."""
    outputs, inputs = set(all_writes[task]), set(all_reads[task])
    if not repeatable[task] or any(several[value] for value in outputs):
        return [task]
    found = {task}
    for value in all_writes[task]:
        for other in graph.producers[value].tolist():
            fits = set(all_writes[other]) <= outputs and set(all_reads[other]) <= inputs
            if fits and repeatable[other] and not graph.required[other]:
                found.add(other)
    written = {other: sum(int(graph.size[value]) for value in all_writes[other]) for other in found}
    return sorted(found, key=lambda other: (graph.time[other], written[other], other))
