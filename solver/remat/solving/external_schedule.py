"""`remat.schedule_of`: turn an external plan, given as an order of runs, into a placed and verified result."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import IO, Any

import numpy as np

from remat.errors import OptionError, checked_call
from remat.graph.taskgraph import IntArray, TaskGraph
from remat.instance import load
from remat.messages import brief, nearest
from remat.placement import Unplaceable, place
from remat.plugin.applicability import check_reach
from remat.plugin.emit import check_length, run_in_order
from remat.plugin.problem import Problem
from remat.plugin.proposal import Proposal
from remat.plugin.registry import ANY_KIND, Algorithm
from remat.schedule.document import Copy, Drop, Run, Step
from remat.schedule.steps import Steps
from remat.solving.budget import Budget
from remat.solving.conclusion import conclude
from remat.solving.problem_setup import AnyInstance, AnyMachine, make_problem
from remat.solving.result import Result
from remat.solving.verifying import examine
from remat.verifier import check

GIVEN = Algorithm(
    name="given",
    solver="",
    kinds=(ANY_KIND,),
    summary="runs that a caller names",
    guarantee="strategy",
    within="the given runs",
    devices=True,
)
"""The source of an external schedule, which is not registered as an algorithm."""


@checked_call(OptionError)
def schedule_of(
    instance: AnyInstance,
    runs: Iterable[str] | Iterable[dict[str, Any] | Step] | str | os.PathLike[str] | IO[Any] | dict[str, Any],
    *,
    budget: Budget = None,
    machine: AnyMachine = None,
) -> Result:
    """Turn a saved schedule, or one of another program, into a verified result.

    Parameters
    ----------
    instance : path, open file, dict or instance
    runs : iterable of str, or schedule
        Names of tasks in execution order, repeats allowed. Every value must have been made, or be an input, when it is
        read. Or a schedule as `remat.verify` accepts it: a path, an open file, a dict, or steps.
    budget, machine
        As in `remat.solve`. A schedule has no budget.

    Returns
    -------
    Result
        For an order, all runs are on the first processor, one after the other. Each value is dropped after its last use
        before it is made again, so that no other schedule with these runs needs less memory. If the budget is below its
        peak, the status says so, with the minimum budget for these runs.

    Raises
    ------
    remat.InstanceError, remat.OptionError
        For input that cannot be used. If a run is impossible, the error names the run and the missing value. If the
        schedule breaks rules, the error names the first violation (`remat.verify` lists all).

    Notes
    -----
    O(accesses log accesses). The status is `optimal` if the makespan meets a bound.
    """
    given = _entries(runs)
    if given is None or (given and isinstance(given[0], (dict, Run, Copy, Drop))):
        if budget is not None:
            raise OptionError("a schedule has no budget; give machine=, or an order of runs", argument="budget")
        schedule: Any = runs if given is None else given
        return examine(instance, schedule, machine=machine).as_result()
    problem = make_problem(load(instance), budget=budget, machine=machine)
    check_reach(problem, GIVEN)
    tasks = _tasks(problem.graph, given)
    _check_reads(problem.graph, tasks)
    steps = run_in_order(problem.graph, problem.machine, tasks)
    _check_rules(problem, steps)
    return conclude(problem, GIVEN, Proposal(steps=steps), {})


def _entries(runs: Any) -> list[Any] | None:
    """Return the entries of an order or a list of steps; None for a document, or a file that contains one."""
    if isinstance(runs, (str, os.PathLike, dict)) or callable(getattr(runs, "read", None)):
        return None
    if not isinstance(runs, Iterable) or isinstance(runs, (type, bytes)) or getattr(runs, "shape", None) == ():
        raise OptionError(f"expected names of tasks in order, or a schedule, not {brief(runs)}", argument="runs")
    return list(runs)


def _tasks(graph: TaskGraph, runs: Iterable[str]) -> IntArray:
    """Return the tasks' indices."""
    found: list[int] = []
    for name in runs:
        index = graph.tasks.find(name) if isinstance(name, str) else None
        if index is None:
            near = nearest(name, list(graph.tasks[:10_000]))
            hint = f"; did you mean {near!r}?" if near else ""
            raise OptionError(f"run {len(found)}: there is no task {brief(name)}{hint}", argument="runs")
        found.append(index)
    check_length(len(found), "the given plan")
    return np.array(found, dtype=np.int64)


def _check_reads(graph: TaskGraph, tasks: IntArray) -> None:
    """Refuse runs that read values before they are written."""
    never = len(tasks)
    first = np.full(len(graph.values), never, dtype=np.int64)
    writes, reads = graph.writes.gather(tasks), graph.reads.gather(tasks)
    np.minimum.at(first, writes.items, writes.rows)
    first[list(graph.available)] = -1
    early = np.flatnonzero(first[reads.items] >= reads.rows)
    if len(early):
        run, value = int(reads.rows[early[0]]), int(reads.items[early[0]])
        name = graph.described(int(tasks[run]), repr)
        raise OptionError(
            f"run {run}, {name}, reads {graph.values[value]!r}, which no earlier run writes",
            argument="runs",
        )


def _check_rules(problem: Problem, steps: Steps) -> None:
    """Refuse violations at any budget: missing outputs, and repeated runs of tasks that must run once."""
    unbounded = problem.machine.with_capacities({memory.name: None for memory in problem.machine.memories})
    outcome = place(problem.graph, unbounded, steps)
    assert not isinstance(outcome, Unplaceable)
    violations = check(problem.graph, unbounded, steps.placed(outcome.start)).violations
    if violations:
        raise OptionError(str(violations[0]), argument="runs")
