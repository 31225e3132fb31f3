"""A chain in the form that gives moment programs the best bounds: one forward task per stage, in one common order.

A stage has two forwards, one of which saves, and a schedule may run either first. In both cases, the stage *has run*.
One task therefore represents both: it reads x_k, writes x_{k+1} and s_k, and takes the time of the faster one. If only
the other forward produces the values that the backward reads, its additional time is a separate task. This task runs
with the first run or any time after it.

In every schedule, the first runs then have one order: forwards, loss, backwards. The model neglects that a forward
without saving takes fewer bytes. Its moments are therefore those of the loss and the backwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from remat.plugin import Number, Problem
from remat_algorithms.dag.moments.before_first_run import Listed
from remat_algorithms.dag.moments.bounds import Setting
from remat_algorithms.dag.moments.integer_facts import Facts, places_of, rows_with


def setting_of(problem: Problem) -> Setting | None:
    """Return the setting of a chain's programs, whose bounds hold for all schedules; None if they do not apply.

    Parameters
    ----------
    problem : Problem
        A chain without variants and parameters.

    Notes
    -----
    O(L). Tasks are the forwards 0..L-1, the loss L, the backwards L+1..2L, and the additional times of saving.
    """
    if problem.chain.length == 0 or problem.chain.variants is not None:
        return None
    setting = Setting.of(problem, listed=True)
    if setting is None:
        return None
    facts = _Swept(problem, setting.facts).facts()
    return replace(setting, facts=facts, order=Listed(facts))


@dataclass
class _Swept:
    """The facts of a chain's task graph (forwards, saving ones if any, loss, backwards), with one forward per stage."""

    problem: Problem
    given: Facts

    def __post_init__(self) -> None:
        chain = self.problem.chain
        self.length, self.saves = chain.length, chain.saves
        saved = chain.reads_saved & chain.saves
        self.saved: list[bool] = saved.tolist()
        self.slower: list[bool] = (saved & (chain.saving_forward_time > chain.forward_time)).tolist()

    def facts(self) -> Facts:
        """Return them."""
        given, length = self.given, self.length
        late = length * (2 if self.saves else 1)
        rest = range(late, late + length + 1)
        forward = [self._forwards(stage) for stage in range(length)]
        extra = [stage for stage in range(length) if self.slower[stage]]
        time = [min(given.time[task] for task in tasks) for tasks in forward]
        least = [min(given.length[task] for task in tasks) for tasks in forward]
        more = [given.length[length + stage] - time[stage] for stage in extra]
        kept = [tasks[-1] for tasks in forward] + list(rest)
        nothing: list[list[int]] = [[] for _ in extra]
        writes = [self._written(stage, forward[stage][-1]) for stage in range(length)]
        writes += [given.writes[task] for task in rest]
        reads = [given.reads[task] for task in kept]
        order = self._order(extra)
        return replace(
            given,
            base=self._base(),
            time=[*time, *(given.time[task] for task in rest), *([0] * len(extra))],
            length=[*least, *(given.length[task] for task in rest), *more],
            cost=[*time, *(given.cost[task] for task in rest), *([0] * len(extra))],
            order=order,
            place=places_of(order, len(order)),
            repeat=[*(given.repeat[task] for task in kept), *([True] * len(extra))],
            unread=[*([False] * length), *(given.unread[task] for task in rest), *([True] * len(extra))],
            in_place=[*(given.in_place[task] for task in kept), *([False] * len(extra))],
            reads=reads + nothing,
            writes=writes + nothing,
            makers=rows_with(writes, len(given.size)),
            users=rows_with(reads, len(given.size)),
            workspace=[*(given.workspace[task] for task in kept), *([0] * len(extra))],
            written=[sum(given.size[value] for value in row) for row in writes] + [0] * len(extra),
        )

    def _forwards(self, stage: int) -> list[int]:
        return [stage, self.length + stage] if self.saves else [stage]

    def _written(self, stage: int, task: int) -> list[int]:
        """Return the values that a stage's forward writes and some task reads."""
        written = self.given.writes[task]
        return written if self.saved[stage] else [value for value in written if value <= self.length]

    def _order(self, extra: list[int]) -> list[int]:
        length, later = self.length, {stage: 2 * self.length + 1 + number for number, stage in enumerate(extra)}
        order = []
        for stage in range(length):
            order.append(stage)
            if stage in later:
                order.append(later[stage])
        return [*order, length, *range(2 * length, length, -1)]

    def _base(self) -> Number:
        """Return the total time of the runs that every schedule contains."""
        chain = self.problem.chain
        plain: list[Number] = chain.forward_time.tolist()
        saving: list[Number] = chain.saving_forward_time.tolist() if self.saves else plain
        rows = zip(plain, saving, self.saved, strict=True)
        forward = [with_saving if saved else min(without, with_saving) for without, with_saving, saved in rows]
        times: list[Number] = [*forward, chain.loss_time, *chain.backward_time.tolist()]
        return sum(times) if self.problem.graph.exact_times else math.fsum(times)
