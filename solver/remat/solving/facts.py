"""`remat.show`: facts about an instance that need no search."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from remat.errors import ClaimError, OptionError, checked_call
from remat.graph.bounds import MemoryBound, reference_of
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.instance import MachineModel, digest, load
from remat.instance.loading import machine_argument
from remat.plugin.problem import Problem
from remat.solving.batch_splitting import described
from remat.solving.budget import Budget
from remat.solving.entry import solve
from remat.solving.overlap_bound import Hiding, hiding_of
from remat.solving.peak import module_at
from remat.solving.problem_setup import AnyInstance, make_problem
from remat.solving.static_memory import Term, terms_of
from remat.units import Number, Units

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.solving.result import Result

NO_RECOMPUTE_ALGORITHM = "keep-all"
PIPELINE_ALGORITHM = "1f1b"
RANKS_ALGORITHM = "zero"


@dataclass(frozen=True, slots=True)
class Need:
    """Minimum bytes of a memory, and the task that sets them (None: residency alone), with its module."""

    size: int
    task: str | None
    module: str = ""


@dataclass(frozen=True, slots=True)
class Largest:
    """The name and the figure of the largest value, or of the longest task, with its module."""

    name: str
    figure: Number
    module: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class Facts:
    """An instance's facts. Times are in the instance's time unit, sizes in its memory unit.

    Their text is what `remat show` prints.

    Attributes
    ----------
    kind, name, digest : str
    units : Units
    length : int or None
        Stages of a chain, steps of an adjoint, nodes of a tree; None for a dag.
    variants : int
        Number of variants of all stages of a chain; 0 if each stage has one.
    tasks, values : int
        Numbers of tasks and values of the lowered task graph.
    total_size : int
        All values together, each once.
    largest_value, longest_task : Largest or None
        None without values.
    static_memory : int
    by_type, tied, placeable, collectives : int
        Numbers of tasks whose time depends on the type of the processor, of tasks that not every processor may run, of
        inputs that the schedule places, and of tasks that run in several memories at once.
    divisions : str
        The possible divisions of a pipeline's batch; empty if the division is fixed.
    no_recompute_time : int or float
        Each needed task once.
    no_recompute_peak : int or None
        Verified peak of the first processor's memory when everything runs once, in the reference order, and each
        value is freed after its last use. None if such a schedule needs transfers.
    no_recompute_peak_step : str or None
        The step at which this peak occurs.
    no_recompute_peak_module : str
        The module, stage or layer of this step; empty if unknown.
    exchange_time, transfer_bound : int or float
        The part of that time for exchanges between ranks; a lower bound on the time of mandatory transfers.
    time_bound : int or float
        Lower bound on the makespan of every schedule on this machine.
    time_bound_cause : str
    memory_needs : mapping of memory name to Need
        Lower bounds on the bytes of each memory in every schedule; they may be unattainable.
    total_need : Need or None
        Lower bound on the bytes of all memories together; None for one memory, or if unknown.
    machine : Machine
        With the budgets applied.
    working_memory : str
        The first processor's memory, to which `no_recompute_peak` refers.
    hiding : Hiding or None
        The transfers that the links of this memory can hide; None without links or `no_recompute_peak`.
    terms : tuple of Term
        Bytes due to parameters; empty without parameters.
    ranks : int
        Number of data-parallel ranks; the figures are those of one rank.
    alone : Result or None
        The schedule with `no_recompute_peak`.
    """

    _shown_by: ClassVar[str] = "remat.report.text.facts"

    kind: str
    name: str
    digest: str
    units: Units
    length: int | None
    variants: int
    tasks: int
    values: int
    total_size: int
    largest_value: Largest | None
    longest_task: Largest
    static_memory: int
    by_type: int
    tied: int
    placeable: int
    divisions: str
    collectives: int
    no_recompute_time: Number
    no_recompute_peak: int | None
    no_recompute_peak_step: str | None
    no_recompute_peak_module: str
    exchange_time: Number
    transfer_bound: Number
    time_bound: Number
    time_bound_cause: str
    memory_needs: Mapping[str, Need]
    total_need: Need | None
    machine: Machine
    working_memory: str
    hiding: Hiding | None
    terms: tuple[Term, ...] = ()
    ranks: int = 1
    alone: Result | None = None

    def __repr__(self) -> str:
        text: str = import_module(self._shown_by).facts_table(self)
        return text

    @property
    def reference_time(self) -> Number:
        """The time to which overheads refer."""
        return reference_of(self.no_recompute_time, self.exchange_time, self.transfer_bound)

    @property
    def too_small(self) -> tuple[str, ...]:
        """Memories whose capacity is below the least need of any schedule: the instance is infeasible."""
        capacity = {memory.name: memory.capacity for memory in self.machine.memories}
        found = []
        for name, need in self.memory_needs.items():
            limit = capacity[name]
            if limit is not None and limit < need.size:
                found.append(name)
        return tuple(found)

    @property
    def total_too_small(self) -> bool:
        """Whether all capacities together are below the least need of any schedule: the instance is infeasible."""
        capacities = [memory.capacity for memory in self.machine.memories]
        known = sum(capacity for capacity in capacities if capacity is not None)
        return self.total_need is not None and None not in capacities and known < self.total_need.size

    @property
    def fits(self) -> bool | None:
        """Whether everything fits without recomputation; None if unknown."""
        if self.no_recompute_peak is None:
            return None
        return self.capacity is None or self.no_recompute_peak <= self.capacity

    @property
    def capacity(self) -> int | None:
        """Capacity of the working memory; None: unlimited."""
        return self.machine.memories[self.machine.memory_index[self.working_memory]].capacity

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as a JSON document."""
        return {
            "kind": self.kind,
            "name": self.name,
            "digest": self.digest,
            "units": {"time": self.units.time, "memory": self.units.memory},
            "length": self.length,
            "variants": self.variants,
            "tasks": self.tasks,
            "values": self.values,
            "total_size": self.total_size,
            "largest_value": _pair(self.largest_value, "size"),
            "longest_task": _pair(self.longest_task, "time"),
            "static_memory": self.static_memory,
            "by_type": self.by_type,
            "tied": self.tied,
            "placeable": self.placeable,
            "divisions": self.divisions,
            "collectives": self.collectives,
            "no_recompute_time": self.no_recompute_time,
            "reference_time": self.reference_time,
            "no_recompute_peak": self.no_recompute_peak,
            "no_recompute_peak_step": self.no_recompute_peak_step,
            "fits_without_recomputation": self.fits,
            "time_bound": self.time_bound,
            "time_bound_cause": self.time_bound_cause,
            "memory_needs": {name: {"size": n.size, "task": n.task} for name, n in self.memory_needs.items()},
            "total_need": None
            if self.total_need is None
            else {"size": self.total_need.size, "task": self.total_need.task},
            "too_small": list(self.too_small),
            "total_too_small": self.total_too_small,
            "machine": self.machine.to_document(),
            "hiding": None if self.hiding is None else self.hiding.to_dict(),
            "terms": [
                {"name": term.name, "size": term.size, "largest": term.largest, "homes": dict(term.homes)}
                for term in self.terms
            ],
            "ranks": self.ranks,
        }


@checked_call(OptionError)
def show(
    instance: AnyInstance,
    *,
    budget: Budget = None,
    machine: str | os.PathLike[str] | dict[str, Any] | MachineModel | None = None,
) -> Facts:
    """Return an instance's facts: sizes, the no-recompute time and peak, and lower bounds with their causes.

    Parameters
    ----------
    instance : path, open file, dict or instance
    budget : int, str or mapping, optional
        As for `remat.solve`.
    machine : path, dict or MachineModel, optional
        Replaces the instance's machine.

    Returns
    -------
    Facts

    Raises
    ------
    remat.InstanceError, remat.OptionError
        For input that cannot be used.

    Notes
    -----
    O(size of the task graph); the no-recompute schedule is built, placed and verified.
    """
    loaded = load(instance)
    model = machine_argument(machine, loaded.units.build())
    problem = make_problem(loaded, budget=budget, machine=model)
    graph = problem.graph
    working = problem.machine.memories[problem.machine.processors[0].memory].name
    alone = _without_recomputation(loaded, problem, model)
    if alone is not None and loaded.budgets_are_for_all:
        working = max(alone.peak_memory, key=lambda name: alone.peak_memory[name])
    bound, cause = _time_bound(problem)
    needs = {
        memory.name: _need(graph, need)
        for memory, need in zip(problem.machine.memories, problem.memory_bounds, strict=True)
        if need is not None
    }
    longest = int(np.argmax(graph.time))
    return Facts(
        kind=problem.kind,
        name=loaded.name,
        digest=digest(loaded),
        units=problem.units,
        length=loaded.length,
        variants=loaded.listed_variants,
        tasks=len(graph.tasks),
        values=len(graph.values),
        total_size=int(graph.size.sum()),
        largest_value=_largest_value(graph),
        longest_task=Largest(graph.tasks[longest], graph.time[longest].item(), graph.module(longest)),
        static_memory=graph.static_memory,
        by_type=0 if graph.times is None else int((graph.times != graph.times[0]).any(axis=0).sum()),
        tied=len(graph.tied),
        placeable=len(graph.placeable),
        divisions=described(loaded),
        collectives=len(graph.parts),
        no_recompute_time=problem.no_recompute_time,
        exchange_time=problem.exchange_time,
        transfer_bound=problem.transfer_bound,
        no_recompute_peak=None if alone is None else alone.peak_memory[working],
        no_recompute_peak_step=None if alone is None else alone.peak_step(working),
        no_recompute_peak_module="" if alone is None else module_at(alone, working, numbered=False),
        time_bound=bound,
        time_bound_cause=cause,
        memory_needs=needs,
        total_need=None if problem.total_bound is None else _need(graph, problem.total_bound),
        machine=problem.machine,
        working_memory=working,
        hiding=None if alone is None or loaded.budgets_are_for_all else _hiding(alone, problem, working, needs),
        terms=terms_of(graph, problem.machine),
        ranks=loaded.ranks,
        alone=alone,
    )


def _largest_value(graph: TaskGraph) -> Largest | None:
    if not len(graph.size):
        return None
    largest = int(np.argmax(graph.size))
    return Largest(graph.values[largest], int(graph.size[largest]), graph.value_module(largest))


def _need(graph: TaskGraph, bound: MemoryBound) -> Need:
    if bound.task is None:
        return Need(bound.size, None)
    return Need(bound.size, graph.tasks[bound.task], graph.module(bound.task))


def _without_recomputation(instance: Instance, problem: Problem, machine: MachineModel | None) -> Result | None:
    """Run everything once without limits; through the registry, like any solve."""
    unbounded = {memory.name: None for memory in problem.machine.memories}
    name = PIPELINE_ALGORITHM if instance.budgets_are_for_all else NO_RECOMPUTE_ALGORITHM
    # Collectives, and parameters that may lie anywhere, need an algorithm that knows them.
    names = (name, RANKS_ALGORITHM) if problem.graph.parts or problem.graph.placeable else (name,)
    for one in names:
        try:
            return solve(instance, algorithm=one, budget=unbounded, machine=machine)
        except (ClaimError, OptionError):  # inputs or outputs elsewhere: it takes transfers; or no such algorithm
            continue
    return None


def _hiding(alone: Result, problem: Problem, working: str, needs: Mapping[str, Need]) -> Hiding | None:
    if alone.report is None:
        return None
    profile = alone.report.profiles[working]
    least = needs[working].size if working in needs else 0
    return hiding_of(problem.machine, profile.time, profile.size, compute_time=alone.report.makespan, least=least)


def _time_bound(problem: Problem) -> tuple[Number, str]:
    bound = problem.least_makespan
    if 0 < bound == problem.transfer_bound > problem.no_recompute_time:
        return bound, "values that must cross a link"
    processors = len(problem.machine.processors)
    if processors == 1:
        return bound, "all needed tasks, one after the other"
    tasks = problem.needed.forced
    work = float(problem.graph.time[tasks].sum()) + float(problem.needed.packed_time)
    share = work / sum(processor.speed for processor in problem.machine.processors)
    if problem.graph.exact_times:
        share = math.ceil(share * (1 - 1e-9))
    if bound > share * (1 + 1e-9):
        return bound, "the longest path through the task graph"
    return bound, f"all needed tasks, shared by {processors} processors"


def _pair(largest: Largest | None, figure: str) -> dict[str, Any] | None:
    return None if largest is None else {"name": largest.name, figure: largest.figure}
