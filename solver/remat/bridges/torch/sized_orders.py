"""Orders of a captured step, verified one after the other for the sizes of a call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cached_property

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.operator_timing import costs_of
from remat.bridges.torch.optimizers import read_optimizer
from remat.bridges.torch.plan_options import Choices
from remat.bridges.torch.planning import Plan, plan_of, search_least, split_of, step_of
from remat.bridges.torch.plans import events_of
from remat.bridges.torch.target_device import device_of
from remat.errors import RematError
from remat.solving.entry import solve
from remat.solving.external_schedule import schedule_of
from remat.solving.result import Result


class Orderable:
    """A captured step whose orders are verified one after the other.

    Parameters
    ----------
    captured : Captured
    choices : Choices
    """

    def __init__(self, captured: Captured, choices: Choices) -> None:
        self.captured = captured
        self.split = split_of(captured, choices)
        optimizer = read_optimizer(choices.optimizer)
        self.step = step_of(captured, choices, self.split, optimizer)
        self.optimizer = optimizer.called(device_of(captured))
        costs = costs_of(captured, choices.costs, choices.cache)
        self.instance = captured.instance(costs, static=sum(self.split.values()) - self.split["reserve"])

    @cached_property
    def kept(self) -> Result:
        """The schedule without recomputation."""
        return schedule_of(self.instance, self.captured.joint.keep_all)

    def budget(self, share: Decimal, whole: int) -> int:
        """Return a share of a peak as a budget, which includes the reserve."""
        return int(share * whole) + self.split["reserve"]

    def within(self, budget: int, plans: Iterable[Plan]) -> Plan | None:
        """Return the plan that recomputes least among those that hold a budget: without recomputation, or a known one.

        Parameters
        ----------
        budget : int
        plans : iterable of Plan
            For other sizes, or other programs, whose order need not exist here.
        """
        most = budget - self.split["reserve"]
        if sum(self.step.values()) > most:
            return None
        if self.kept.peak_memory["memory"] <= most:
            return self._plan(self.kept)
        found: list[Result] = []
        for runs in dict.fromkeys(plan.runs for plan in plans):
            if self.captured.joint.tasks.keys() >= set(runs):
                try:
                    result = schedule_of(self.instance, runs)
                except RematError:
                    continue
                if result.peak_memory["memory"] <= most:
                    found.append(result)
        best = min(found, key=lambda result: result.makespan or 0, default=None)
        return None if best is None else self._plan(best)

    def ordered(self, runs: Sequence[str]) -> Plan:
        """Return the plan that runs in an order."""
        return self._plan(schedule_of(self.instance, runs))

    def _plan(self, result: Result) -> Plan:
        return plan_of(self.captured, result, self.split, self.step, self.optimizer)


def least_of(captured: Captured, choices: Choices) -> tuple[tuple[str, ...], int]:
    """Return the order with the smallest peak that a quick search finds, and this peak without fixed bytes."""
    instance = captured.instance(costs_of(captured, choices.costs, choices.cache))
    result = search_least(instance, choices)
    if result.columns is None:
        result = solve(instance, algorithm="keep-all")
    runs = (event.task for event in events_of(captured, result))
    return tuple(task for task in runs if task is not None), result.peak_memory["memory"]
