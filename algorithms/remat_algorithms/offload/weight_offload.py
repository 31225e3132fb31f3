"""`weight-offload`: which stages' parameters leave the device between forward and backward, and where they are updated.

After Beaumont, Eyraud-Dubois, Shilova and Zhao 2022, who choose the stages to offload so that they fit and the link
hides as much of it as can be; the choice is NP-hard, and this is a heuristic:

1. Stages are put in an order (longest time between forward and backward first; largest parameters first; most bytes
   per transfer time saved at the highest point first). The fewest first ones of it that make everything fit leave.
2. A walk flips stages, exchanges one that leaves for one that stays, and moves updates between processors. Of short
   chains all choices are tried.

Both are tried with forwards that keep only their outputs, and run again before their backward, too, if something has to
wait otherwise.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import Field

from remat.bounds import makespan_bound
from remat.context import Context
from remat.errors import OptionError
from remat.options import Options
from remat.problem import ALL_SCHEDULES, Bound, LeastBudget, Problem, Proposal
from remat.units import Number
from remat_algorithms.offload.dispatch import Dispatched, Overfull, dispatch
from remat_algorithms.offload.weights import Choice, Setting, Training
from remat_algorithms.offload.weights_rules import setting_of

Choices = dict[int, Choice]

WORSE = 0.05
"""Most by which the walk accepts a longer makespan; little is likelier."""
BACK = 0.05
"""How often it returns to the best after a refusal."""


class WeightOffloadOptions(Options):
    """Options of `weight-offload`."""

    evaluations: int = Field(300, ge=0, description="most changes that the walk tries")


@dataclass(frozen=True, slots=True)
class _Found:
    training: Training
    outcome: Dispatched

    @property
    def makespan(self) -> Number:
        return self.outcome.makespan

    @property
    def cost(self) -> tuple[Number, int]:
        """What is less is better: the makespan, and of equal ones the fewest transfers."""
        return self.outcome.makespan, len(self.training.transfers)


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
        self.fastest = makespan_bound(setting.graph, setting.machine, setting.problem.needed)
        self.movable = [index for index in setting.updated if setting.stages[index].parameters is not None]
        if setting.parameter_home == setting.device and setting.refuge is None:
            self.movable = []
        self.updaters = [0] if setting.helper is None else [setting.helper, 0]
        self.best: _Found | None = None
        self.best_of: dict[bool, _Found] = {}  # with and without recomputation
        self.overfull: list[tuple[Overfull, Training]] = []

    def start(self) -> _Found | None:
        """Return the best of the first choices: for each order of stages and each updater, without recomputation first.

        Those of `l2l` are among them, and of `zero-offload`, where nothing leaves.
        """
        for recompute in (False, True):
            for updater in list(self.updaters):
                try:
                    self._starts(updater, recompute=recompute)
                except OptionError:  # no way to this processor
                    self.updaters.remove(updater)
                    if not self.updaters:
                        raise
                if self.context.stopped or self._is_fastest():
                    return self.best
        return self.best

    def improve(self, best: _Found, evaluations: int) -> _Found:
        """Try all choices, if they are no more than that; otherwise flip and exchange, now and then for the worse."""
        ways = len(self.updaters) ** len(self.setting.updated) * 2 ** len(self.movable)
        starts = sorted(self.best_of.items(), key=lambda entry: entry[1].cost)
        for recompute, start in starts:
            if ways <= evaluations:
                for choices in self._all_choices():
                    if self.context.stopped or self._is_fastest():
                        break
                    self._evaluate(Training(self.setting, choices, recompute=recompute))
            else:
                self._walk(start, evaluations // len(starts), recompute=recompute)
        if ways > evaluations:
            self._trim()
        return self.best or best

    def _trim(self) -> None:
        """Let stay what leaves for nothing: the walk is after the makespan alone."""
        best = self.best
        for index in self.movable if best is not None and not best.training.one_ahead else ():
            assert best is not None
            choice = best.training.choices[index]
            if choice.streams and not self.context.stopped:
                changed = {**best.training.choices, index: Choice(False, choice.updater)}
                self._evaluate(Training(self.setting, changed, recompute=best.training.recompute))
                best = self.best

    def _walk(self, best: _Found, evaluations: int, *, recompute: bool) -> None:
        chance = self.context.random()
        current = best
        for _ in range(evaluations):
            if self.context.stopped or self._is_fastest():
                return
            changed = self._changed(current.training.choices, chance)
            found = self._evaluate(Training(self.setting, changed, recompute=recompute))
            if found is not None and found.cost < best.cost:
                best = found
            if found is not None and found.makespan <= current.makespan * (1 + WORSE * chance.random() ** 2):
                current = found
            elif chance.random() < BACK:
                current = best

    def _is_fastest(self) -> bool:
        return self.best is not None and self.best.makespan <= self.fastest

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
            if self.context.stopped:
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
            return self._evaluate(Training(self.setting, choices, recompute=recompute)) is not None

        low, high = 0, len(order)
        if fits(low) or not order or not fits(high):
            return
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)

    def _leaving(self, order: list[int], count: int, updater: int) -> Choices:
        leave = set(order[: max(0, count)])
        return {index: Choice(index in leave, updater) for index in self.setting.updated}

    def _evaluate(self, training: Training) -> _Found | None:
        """Dispatch, and remember what is best, or what would have been needed; return what fits."""
        outcome = dispatch(self.setting.graph, self.setting.machine, training.program)
        if not isinstance(outcome, Dispatched):
            if self.best is None:
                self.overfull.append((outcome, training))
            return None
        found = _Found(training, outcome)
        known = self.best_of.get(training.recompute)
        if known is None or found.cost < known.cost:
            self.best_of[training.recompute] = found
        if self.best is None or found.cost < self.best.cost:
            self.best = found
            self.context.report(outcome.steps, makespan=outcome.makespan)
        return found

    def _all_choices(self) -> Iterator[Choices]:
        movable = set(self.movable)
        ways = {
            can: [Choice(s, u) for s in ((False, True) if can else (False,)) for u in self.updaters]
            for can in (True, False)
        }
        for row in itertools.product(*(ways[index in movable] for index in self.setting.updated)):
            yield dict(zip(self.setting.updated, row, strict=True))

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
