"""Search for the model budget whose schedule, replayed with the true sizes, is the fastest one that fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import Context, LeastBudget, Problem, Proposal, Termination, format_size
from remat_algorithms.dag.hierarchy.levels import Level
from remat_algorithms.dag.literature.fastest_that_fits import fits, whole
from remat_algorithms.dag.literature.retention import Replay, Stages
from remat_algorithms.dag.literature.retention_phases import Training
from remat_algorithms.kit.incumbent import Incumbent

NEIGHBOURS = 12
"""Number of model budgets tried beyond the last one that fits: peaks need not rise with them."""


@dataclass
class BudgetSearch:
    """Schedules tried, the best one, and the smallest peak of those that are tried at every budget."""

    problem: Problem
    training: Training
    context: Context
    least: int = 0

    @property
    def stages(self) -> Stages:
        """Stages of the problem."""
        return self.training.stages

    @cached_property
    def kept(self) -> Incumbent[Replay]:
        """Best schedule."""
        return Incumbent[Replay](self.context, lambda replay: replay.steps)

    def without_reruns(self) -> bool:
        """Try the schedule without reruns; return whether it fits."""
        replay = self.stages.replay(whole(self.stages))
        self.least = replay.peak
        return self._offer(replay)

    def early(self, candidates: Iterable[list[int]]) -> None:
        """Try schedules that take no time to find, until one fits; they do not depend on the budget."""
        for runs in candidates:
            replay = self.stages.replay(self.stages.useful(runs))
            self.least = min(self.least, replay.peak)
            if self._offer(replay):
                return

    def _offer(self, replay: Replay) -> bool:
        fit = fits(self.stages, replay.peak)
        if fit:
            self.kept.take(replay, replay.time, rank=(replay.time, replay.peak))
        return fit

    def search(self, level: Level, lowest: int) -> None:
        """Bisect the model budgets from `lowest`, and try the neighbours of the highest one that fits.

        If the lowest one does not fit, its neighbours are tried: these do not depend on the budget.
        """
        tried, highest = dict[int, bool](), level.highest
        step = max(1, (highest - lowest) // 200)

        def fit(limit: int) -> bool:
            if limit not in tried:
                replay = self._replay(level, limit)
                if not any(tried.values()) and limit <= lowest + NEIGHBOURS * step:
                    self.least = min(self.least, replay.peak)
                tried[limit] = self._offer(replay)
            return tried[limit]

        low, high = lowest, highest + 1
        if fit(lowest):
            while high - low > 1 and not self.context.stopped:
                middle = (low + high) // 2
                low, high = (middle, high) if fit(middle) else (low, middle)
        for number in range(1, NEIGHBOURS + 1):
            for limit in (low + number * step, low - number * step):
                if self.context.stopped:
                    return
                if lowest <= limit <= highest:
                    fit(limit)

    def _replay(self, level: Level, limit: int) -> Replay:
        descent = level.descent(limit)
        backward = descent.runs(int(np.argmin(descent.last)))
        network = level.whole.network
        stage = network.stage
        runs = [*range(network.forward), *(stage[position] for position in backward)]
        return self.stages.replay(self.stages.useful(self._lightest(runs)))

    def _lightest(self, runs: list[int]) -> list[int]:
        """Return the tasks of stages: for each run, the cheapest task that writes the values that are read."""
        stages = self.stages
        wanted = set(stages.ends)
        left = [0] * len(stages)
        for stage in runs:
            left[stage] += 1
        tasks = []
        for stage in reversed(runs):
            left[stage] -= 1
            own = [value for value in stages.writes[stage] if value in wanted]
            must = stages.must_run[stage] and not left[stage]
            if not own and not must:
                continue
            task = stages.tasks[stage] if must else stages.rival(stage, own)
            tasks.append(task)
            wanted.difference_update(own)
            wanted.update(stages.graph.reads[task].tolist())
        return tasks[::-1]

    def propose(self) -> Proposal:
        """Return the best schedule, or the memory of the smallest one."""
        stopped = self.context.termination if self.context.stopped else Termination.COMPLETED
        if (best := self.kept.best) is not None:
            return Proposal(steps=best.steps, makespan=best.time, peak=best.peak, termination=stopped)
        if stopped is not Termination.COMPLETED:
            return Proposal(termination=stopped)
        memory = self.problem.machine.processors[0].memory
        size = format_size(self.least, self.problem.units)
        note = f"the schedule of the hierarchy with the smallest memory needs {size}"
        return Proposal(least=LeastBudget(self.least, None, True, memory), notes=(note,))
