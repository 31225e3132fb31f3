"""`weight-offload`: which stages' parameters leave the device between forward and backward, and where they are updated.

After Beaumont, Eyraud-Dubois, Shilova and Zhao 2022, who choose the stages to offload so that they fit and the link
hides as much of it as can be; the choice is NP-hard, and this is a heuristic:

1. Stages are put in an order (longest time between forward and backward first; largest parameters first; most bytes
   per transfer time saved at the highest point first). The fewest first ones of it that make everything fit leave.
2. A walk flips stages and exchanges one that leaves for one that stays, and moves updates between processors, while
   the dispatched makespan falls.

Both are tried with forwards that keep only their outputs, and run again before their backward, too, if something has to
wait otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from remat.context import Context
from remat.errors import OptionError
from remat.problem import ALL_SCHEDULES, Bound, LeastBudget, Problem, Proposal
from remat.units import Number
from remat_algorithms.offload.dispatch import Dispatched, Overfull, dispatch
from remat_algorithms.offload.weights import Choice, Setting, Training
from remat_algorithms.offload.weights_rules import setting_of

Choices = dict[int, Choice]


class WeightOffloadOptions(BaseModel):
    """Options of `weight-offload`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    evaluations: int = Field(300, ge=0, description="most changes that the walk tries")


@dataclass(frozen=True, slots=True)
class _Found:
    training: Training
    outcome: Dispatched

    @property
    def makespan(self) -> Number:
        return self.outcome.makespan


def solve(problem: Problem, options: WeightOffloadOptions, context: Context) -> Proposal:
    """Search for the stages whose parameters leave.

    Parameters
    ----------
    problem : Problem
        A chain with parameters.
    options : WeightOffloadOptions
    context : Context

    Returns
    -------
    Proposal
        No longer than those of `zero-offload` and `l2l`, where these apply. With the least budget at which its own
        first choices fit, where none does. O((evaluations + log L) L log L).

    Raises
    ------
    remat.OptionError
        If the chain has no parameters, or the machine no way that they must take.
    """
    search = _Search(setting_of(problem, "weight-offload"), context)
    found = search.start()
    if found is None:
        return Proposal(least=search.least(), bounds=_bounds(problem))
    found = search.improve(found, options.evaluations)
    return Proposal(
        steps=found.outcome.steps,
        makespan=found.makespan,
        bounds=_bounds(problem),
        termination=context.termination,
        notes=_notes(found.training),
    )


class _Search:
    def __init__(self, setting: Setting, context: Context) -> None:
        self.setting, self.context = setting, context
        self.fastest = setting.problem.no_recompute_time
        self.movable = [index for index in setting.updated if setting.stages[index].parameters is not None]
        if setting.parameter_home == setting.device and setting.refuge is None:
            self.movable = []
        self.updaters = [0] if setting.helper is None else [setting.helper, 0]
        self.best: _Found | None = None
        self.overfull: list[tuple[Overfull, Training]] = []

    def start(self) -> _Found | None:
        """Return the best of the first choices: for each order of stages and each updater, without recomputation first.

        Those of `l2l` are among them, and of `zero-offload`, where nothing leaves.
        """
        refused: list[OptionError] = []
        for recompute in (False, True):
            for updater in self.updaters:
                try:
                    self._starts(updater, recompute=recompute)
                except OptionError as error:  # no way to this processor
                    refused.append(error)
                if self.best is not None and (self.context.stopped or self.best.makespan <= self.fastest):
                    return self.best
        if len(refused) == 2 * len(self.updaters):
            raise refused[0]
        return self.best

    def improve(self, best: _Found, evaluations: int) -> _Found:
        """Flip and exchange while that helps."""
        chance = self.context.random()
        for _ in range(evaluations):
            if self.context.stopped or best.makespan <= self.fastest:
                break
            choices = self._changed(best.training.choices, chance)
            style = best.training
            self._evaluate(Training(self.setting, choices, recompute=style.recompute, one_ahead=style.one_ahead))
            best = self.best or best
        return best

    def least(self) -> LeastBudget | None:
        """Name the least memory at which one of the first choices fits."""
        machine = self.setting.machine
        for overrun, training in sorted(self.overfull, key=lambda entry: entry[0].needed):
            if overrun.needed == 0:
                continue
            larger = machine.with_capacities({machine.memories[overrun.memory].name: overrun.needed})
            if isinstance(dispatch(self.setting.graph, larger, training.program), Dispatched):
                task = training.program.runs[overrun.position].task
                return LeastBudget(overrun.needed, task, True, overrun.memory)
        return None

    def _starts(self, updater: int, *, recompute: bool) -> None:
        for order in self._orders():
            self._fewest(order, updater, recompute=recompute)
            if self.context.stopped and self.best is not None:
                return
        leave = self._leaving(self.movable, len(self.movable) - 1, updater)
        self._evaluate(Training(self.setting, leave, recompute=recompute, one_ahead=True))

    def _orders(self) -> Iterator[list[int]]:
        stages, size = self.setting.stages, self.setting.graph.size
        bytes_of = {index: int(size[stages[index].parameters]) for index in self.movable}
        yield list(self.movable)
        yield sorted(self.movable, key=lambda index: (-bytes_of[index], index))
        yield sorted(self.movable, key=lambda index: (bytes_of[index], index))

    def _fewest(self, order: list[int], updater: int, *, recompute: bool) -> None:
        """Let the fewest first stages of an order leave that make everything fit (by bisection)."""

        def fits(count: int) -> bool:
            choices = self._leaving(order, count, updater)
            return self._evaluate(Training(self.setting, choices, recompute=recompute))

        low, high = 0, len(order)
        if fits(low) or not order or not fits(high):
            return
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)

    def _leaving(self, order: list[int], count: int, updater: int) -> Choices:
        leave = set(order[: max(0, count)])
        return {index: Choice(index in leave, updater) for index in self.setting.updated}

    def _evaluate(self, training: Training) -> bool:
        """Dispatch, and remember what is best, or what would have been needed; return whether it fits."""
        outcome = dispatch(self.setting.graph, self.setting.machine, training.program)
        if not isinstance(outcome, Dispatched):
            if self.best is None:
                self.overfull.append((outcome, training))
            return False
        if self.best is None or outcome.makespan < self.best.makespan:
            self.best = _Found(training, outcome)
            self.context.report(outcome.steps, makespan=outcome.makespan)
        return True

    def _changed(self, choices: Mapping[int, Choice], chance: random.Random) -> Choices:
        """Flip one stage, exchange two, or move an update."""
        changed = dict(choices)
        leave = [index for index in self.movable if choices[index].streams]
        stay = [index for index in self.movable if not choices[index].streams]
        if len(self.updaters) > 1 and chance.random() < 0.3:
            index = chance.choice(self.setting.updated)
            other = self.updaters[self.updaters[0] == choices[index].updater]
            changed[index] = Choice(choices[index].streams, other)
        elif leave and stay and chance.random() < 0.5:
            for index in (chance.choice(leave), chance.choice(stay)):
                changed[index] = Choice(not choices[index].streams, choices[index].updater)
        elif self.movable:
            index = chance.choice(self.movable)
            changed[index] = Choice(not choices[index].streams, choices[index].updater)
        return changed


def _bounds(problem: Problem) -> tuple[Bound, ...]:
    """Bound the makespan by what must cross the links, where only the device computes.

    What tasks read and what does not lie there must come, outputs that lie elsewhere must go: each at the sum of the
    bandwidths of the links there, at most.
    """
    graph, machine = problem.graph, problem.machine
    device = machine.processors[0].memory
    if any(processor.memory != device for processor in machine.processors):
        return ()
    home = {(place.value, machine.memory_index[place.memory] if place.memory else 0) for place in graph.inputs}
    there = {value for value, memory in home if memory == device}
    read = set(graph.reads.items[problem.needed.forced[graph.reads.rows]].tolist())
    coming = sum(int(graph.size[value]) for value in {value for value, _ in home} - there if value in read)
    ends = {(place.value, machine.memory_index[place.memory] if place.memory else 0) for place in graph.outputs}
    leaving = sum(int(graph.size[value]) for value, memory in ends - home if memory != device)
    values: list[Number] = []
    for moved, rates in (
        (coming, [link.bandwidth for link in machine.links if link.target == device]),
        (leaving, [link.bandwidth for link in machine.links if link.source == device]),
    ):
        total: Number = sum(rate for rate in rates if rate is not None)
        if rates and None not in rates:
            whole = isinstance(total, int) and moved % total == 0
            values.append(moved // total if whole else moved / total)
    best = max(values, default=0)
    return (Bound(best, ALL_SCHEDULES, "parameters that must cross the links"),) if best else ()


def _notes(training: Training) -> tuple[str, ...]:
    choices = training.choices.values()
    leave = sum(choice.streams for choice in choices)
    elsewhere = sum(choice.updater != 0 for choice in choices)
    counted = f"{len(choices)} stages with parameters: {leave} leave between F and B, {elsewhere} are updated elsewhere"
    return (counted, "each forward runs again before its backward") if training.recompute else (counted,)
