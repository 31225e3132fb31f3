"""Starts from a schedule that is known before the solve: a warm start, or the best one of other algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat.plugin import Problem, Steps, useful_runs
from remat_algorithms.dag.anytime.initial_moment import plan_of
from remat_algorithms.dag.plans.model import StageModel, stage_model
from remat_algorithms.dag.plans.search_state import Plan


@dataclass(frozen=True)
class Known:
    """A known schedule as a sequence of runs on one processor, without its copies.

    Attributes
    ----------
    runs : list of int
        Tasks; each reads values that earlier runs have written, or inputs.
    order : list of int
        Tasks in the order of their first runs.
    """

    runs: list[int]
    order: list[int]

    def model(self, problem: Problem, reference: StageModel) -> StageModel:
        """Return the simple model in the order of the first runs; `reference` if that is its order."""
        if self.order == reference.task:
            return reference
        return stage_model(problem, np.array(self.order, dtype=np.int64), alternatives=False)

    def plan(self, model: StageModel) -> Plan | None:
        """Return the plan with these runs, which may exceed the budget; None if the model has another order."""
        return plan_of(model, self.runs) if self.order == [model.task[item] for item in model.tables.first] else None


def known_runs(problem: Problem, model: StageModel, steps: Steps | None) -> Known | None:
    """Return the runs of known steps; None if the tasks of a simple model cannot replace them.

    A task of the model replaces an alternative that reads no less and writes no more. Such a schedule may need more
    memory, as may one without its copies.
    """
    if steps is None or not model.simple:
        return None
    replacement = _replacements(problem, model, set(steps.runs.tolist()))
    runs = useful_runs(problem.graph, [replacement[task] for task in steps.runs.tolist() if task in replacement])
    order = list(dict.fromkeys(runs))
    return Known(runs, order) if set(order) == set(model.task) and _reads_are_written(model, order) else None


def _replacements(problem: Problem, model: StageModel, tasks: set[int]) -> dict[int, int]:
    """Return for each task the model's task that can run instead: itself, or one of which it is an alternative."""
    reads, writes = problem.graph.reads.to_lists(), problem.graph.writes.to_lists()
    origin = {value: task for task in model.task for value in writes[task]}
    found = {task: task for task in model.task}
    for task in tasks - found.keys():
        others = {origin.get(value) for value in writes[task]}
        other = others.pop() if len(others) == 1 else None
        if other is not None and set(reads[other]) <= set(reads[task]):
            found[task] = other
    return found


def _reads_are_written(model: StageModel, order: Sequence[int]) -> bool:
    """Whether each first run reads inputs and outputs of earlier ones."""
    tables = model.tables
    item = {task: number for number, task in enumerate(model.task)}
    present = {value for value, initial in enumerate(tables.initial) if initial}
    for task in order:
        number = item[task]
        if not present.issuperset(tables.read_value[tables.read_start[number] : tables.read_start[number + 1]]):
            return False
        present.update(tables.write_value[tables.write_start[number] : tables.write_start[number + 1]])
    return True
