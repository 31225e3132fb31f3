"""A first schedule for the programs, from the greedy of `dag-auto`, before any solver runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from remat_algorithms.dag.plans.model import stage_model
from remat_algorithms.dag.plans.search_state import ALPHAS, Plan
from remat_algorithms.dag.plans.search_state import Search as Greedy
from remat_algorithms.dag.programs.frontier import Frontier
from remat_algorithms.dag.programs.search import Runs, Search, can_run
from remat_algorithms.kit.programs.solver_status import Answer, Job, Outcome, watched


def greedy_schedule(search: Search) -> None:
    """Offer the greedy's schedules to a search, if they are in its class; the search checks whether they fit."""
    order = None if search.order is None else np.array(search.order, dtype=np.int64)
    model = stage_model(search.problem, order)
    job = _Greedy(Greedy(model, search.budget, search.context.seed))
    watched(job, lambda: search.context.interrupted, search.context.seconds_left)
    for plan in job.plans:
        chosen = runs_in_stages(search.front, model.tasks_of(plan.item, plan.full))
        if can_run(search.front, set(chosen)):
            search.offer(chosen)


def runs_in_stages(front: Frontier, tasks: Sequence[int]) -> Runs:
    """Return the runs (stage, position) of a sequence of tasks; a stage ends with the first run of its last task."""
    return sorted(set(_placed(front, tasks)))


def _placed(front: Frontier, tasks: Sequence[int]) -> Iterator[tuple[int, int]]:
    position_of = {task: position for position, task in enumerate(front.tasks)}
    stage = 0
    for task in tasks:
        position = position_of.get(task, -1)
        if position >= 0 and front.may_run(stage, position):
            yield stage, position
        if stage < front.stages and front.terminal[stage] and position == front.end[stage]:
            stage += 1


class _Greedy(Job):
    """The variants of the greedy, in a thread, so that they can be stopped in time."""

    def __init__(self, greedy: Greedy) -> None:
        self.greedy, self.plans, self.halted = greedy, list[Plan](), False

    def solve(self) -> Answer:
        """Collect the plans; see `Job`."""
        for alpha in ALPHAS:
            plan = None if self.halted else self.greedy.construct(alpha)
            if plan is not None:
                self.plans.append(plan)
        return Answer(Outcome.UNKNOWN)

    def stop(self) -> None:
        """Ask the greedy to stop."""
        self.halted = True
        self.greedy.stop()
