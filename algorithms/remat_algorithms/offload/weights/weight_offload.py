"""`weight-offload`: choose the stages whose parameters leave between forward and backward, and the place of updates.

After Beaumont, Eyraud-Dubois, Shilova and Zhao 2022. They choose the stages to offload so that everything fits and the
transfers overlap with computation. The choice is NP-hard, and this is a heuristic:

1. Stages are sorted (longest time between forward and backward first; largest parameters first; smallest first). The
   smallest prefix with which everything fits leaves. Unless that schedule is proved fastest, recomputing the fewest
   forwards (most bytes per time first) is tried, both instead of offloading and in addition to it.
2. A local search flips and exchanges offloaded stages and recomputed forwards, and moves updates between processors.
   For very short chains, all choices are tried.
3. A processor next to the parameters may also run forwards and backwards
   (`remat_algorithms.offload.weights.host_compute`).
4. If the schedule chooses homes, parameters are on the device and states outside it at first. If nothing fits, the
   parameters of the fewest stages are outside. A second local search begins with the states of as many stages as fit on
   the device, and moves homes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from pydantic import Field

from remat.plugin import (
    ALL_SCHEDULES,
    Bound,
    Context,
    Number,
    OptionError,
    Options,
    Problem,
    Proposal,
    Steps,
    makespan_bound,
)
from remat_algorithms.kit.incumbent import Incumbent
from remat_algorithms.kit.integral_bounds import raised
from remat_algorithms.offload.swaps.dispatch import Dispatched, Overfull, dispatch
from remat_algorithms.offload.weights import host_compute
from remat_algorithms.offload.weights.parameters import Choice, Choices, Setting
from remat_algorithms.offload.weights.training_program import Manner, Training
from remat_algorithms.offload.weights.zero_family import least_that_fits, setting_of, with_places

WORSE = 0.05
"""Maximum accepted increase of the makespan in the local search; small ones are likelier."""
HELPED = 3
"""Factor for the number of tried changes if a helper runs forwards and backwards."""
WORSE_HELPED = 0.01
"""The same if a helper runs forwards and backwards: then more small changes exist."""
MOST_HELD = 16
"""Maximum number of tried prefixes of stages whose states are on the device, if both memories are small."""
MOVED = 0.3
"""Probability that the local search moves homes, if the schedule chooses them."""
BACK = 0.05
"""Probability of a return to the best solution after a rejection."""


class WeightOffloadOptions(Options):
    """Options of `weight-offload`."""

    evaluations: int = Field(
        300,
        ge=0,
        description="maximum number of changes that the local search tries; three times as many if the host can also "
        "run layers",
    )


@dataclass(frozen=True, slots=True)
class _Found:
    training: Training
    outcome: Dispatched

    @property
    def steps(self) -> Steps:
        return with_places(self.training.setting, self.training.choices, self.outcome.steps)

    @property
    def makespan(self) -> Number:
        return self.outcome.makespan

    @property
    def cost(self) -> tuple[Number, int]:
        """Cost to minimise: the makespan, then the number of transfers."""
        return self.outcome.makespan, len(self.training.transfers)


def solve(problem: Problem, options: WeightOffloadOptions, context: Context) -> Proposal:
    """Search for the stages whose parameters leave.

    Takes a chain with parameters. The schedule is no longer than those of `zero-offload` and `l2l`, where these apply.
    If no initial choice fits, it reports the smallest budget at which one does. O((evaluations + log L) L log
    L).

    Raises
    ------
    remat.OptionError
        If the chain has no parameters, or the machine lacks a necessary link.
    """
    search = _Search(setting_of(problem, "weight-offload"), context)
    found = search.start()
    if found is None:
        return Proposal(least=least_that_fits(search.setting.machine, search.overfull), bounds=_bounds(problem))
    bounds = (*_bounds(problem), *_crossing(search, found.makespan, context))
    found = search.improve(found, options.evaluations)
    return Proposal(
        steps=found.steps,
        makespan=found.makespan,
        bounds=bounds,
        termination=context.termination,
        notes=_notes(found.training),
    )


class _Search(Incumbent[_Found]):
    def __init__(self, setting: Setting, context: Context) -> None:
        super().__init__(context, lambda found: found.steps)
        self.setting = setting
        self.fastest = makespan_bound(setting.graph, setting.machine, setting.problem.needed)
        self.count = len(setting.stages)
        self.movable = setting.movable
        self.updaters = [0] if setting.helper is None else [setting.helper, 0]
        self.overfull: list[tuple[Overfull, Training]] = []

    def start(self) -> _Found | None:
        """Return the best of the initial choices: for each updater and each order of stages.

        The choices of `l2l` are among them, and those of `zero-offload`, where nothing leaves.
        """
        for updater in list(self.updaters):
            try:
                self._starts(updater)
            except OptionError:  # no path to this processor
                self.updaters.remove(updater)
                if not self.updaters:
                    raise
            if self.context.stopped or self.is_fastest:
                break
        if self.setting.may_be_helped:
            self._helped_starts()
        if self.best is None and self.setting.is_open:
            self._homed_starts()
        return self.best

    def _homed_starts(self) -> None:
        """Place the parameters of as few stages as necessary outside, or the states of as many as fit on the device."""
        setting, (parameters, states) = self.setting, self.setting.places[-1]
        plain = [Choice(updater=self.updaters[0])] * self.count
        bases = [plain, [replace(choice, again=True) for choice in plain]]
        for base in bases if self.best is None and parameters is not None else ():
            there = [replace(setting.placed_at(choice, (parameters, None)), streams=True) for choice in base]
            for order in self._orders():
                self._change(base, there, order)
        for base in bases if self.best is None and states is not None else ():
            self._some_held(base)
        if self.best is None or states is None:
            return
        left = list(self.best.training.choices)
        held = [setting.placed_at(choice, (choice.home, states)) for choice in left]
        for order in self._orders():
            if self.context.stopped or self.is_fastest:
                return
            self._change(held, left, order)

    def _some_held(self, base: Choices) -> None:
        """Hold the states of some first stages on the device: both memories may be too small for all of them."""
        for order in self._orders():
            for number in sorted({part * len(order) // MOST_HELD for part in range(1, MOST_HELD + 1)}):
                if self.best is not None or self.context.stopped:
                    return
                some = set(order[:number])
                self._evaluate(
                    [
                        self.setting.placed_at(c, (c.home, self.setting.device)) if k in some else c
                        for k, c in enumerate(base)
                    ]
                )

    def _helped_starts(self) -> None:
        """Let the helper run the best number of first stages, or one more or less; then update some on the device."""
        for row in host_compute.prefixes(self.setting):
            found: list[tuple[tuple[Number, int], int]] = []
            for place, choices in enumerate(row):
                if self.context.stopped or self.is_fastest:
                    return
                one = self._evaluate(choices)
                if one is not None:
                    found.append((one.cost, place))
            best = min(found, default=(None, -2))[1]
            for choices in row[max(0, best - 1) : best + 2]:
                for updated in host_compute.with_updates(self.setting, choices):
                    if self.context.stopped or self.is_fastest:
                        return
                    self._evaluate(updated)

    def improve(self, best: _Found, evaluations: int) -> _Found:
        """Try all choices if they are few enough; otherwise flip and exchange, sometimes for the worse."""
        each = len(self.updaters) * len(self.setting.places)
        ways = each ** len(self.setting.updated) * 2 ** (len(self.movable) + self.count)
        if ways <= evaluations:
            for choices in self._all_choices():
                if self.context.stopped or self.is_fastest:
                    break
                self._evaluate(choices)
        if self.setting.may_be_helped:
            self._walk(self.best or best, HELPED * evaluations)
            self._trim()
        elif ways > evaluations:
            self._walk(best, evaluations)
            self._trim()
            if self.setting.is_open:
                self._homed_starts()
                self._walk(self.best or best, evaluations, moves_homes=True)
                self._trim()
        return self.best or best

    def _starts(self, updater: int) -> None:
        """Fit choices by offloading, by recomputation with and without it, and by offloading with all recomputed."""
        plain = [Choice(updater=updater)] * self.count
        for order in self._orders():
            self._fewest(plain, order, lambda choice: replace(choice, streams=True))
        if self.best is not None and (self.context.stopped or self.is_fastest):
            return
        streaming = [replace(c, streams=index in self.movable[:-1]) for index, c in enumerate(plain)]
        for choices in (plain, streaming):
            self._fewest(choices, self._by_gain(), lambda choice: replace(choice, again=True))
            if self.context.stopped:
                return
        again = [replace(choice, again=True) for choice in plain]
        self._fewest(again, list(self.movable), lambda choice: replace(choice, streams=True))
        for choices in (streaming, [replace(choice, again=True) for choice in streaming]):
            for away in (False, True):
                self._evaluate(choices, Manner(one_ahead=True, away=away))

    def _orders(self) -> Iterator[list[int]]:
        stages, size = self.setting.stages, self.setting.graph.size
        bytes_of = {index: int(size[stages[index].parameters]) for index in self.movable}
        yield list(self.movable)
        yield sorted(self.movable, key=lambda index: (-bytes_of[index], index))
        yield sorted(self.movable, key=lambda index: (bytes_of[index], index))

    def _by_gain(self) -> list[int]:
        """Return the stages by the bytes that recomputing them frees per time, descending."""
        graph, stages = self.setting.graph, self.setting.stages
        outputs = {stage.plain: set(graph.writes[stage.plain].tolist()) for stage in stages}

        def key(index: int) -> tuple[float, int]:
            stage = stages[index]
            saved = [value for value in graph.writes[stage.forward].tolist() if value not in outputs[stage.plain]]
            time = float(graph.time[stage.plain])
            return time / max(1, int(graph.size[saved].sum())), index

        return sorted(range(self.count), key=key)

    def _fewest(self, base: Choices, order: list[int], changed: Callable[[Choice], Choice]) -> None:
        """Change the smallest prefix of an order with which everything fits (by bisection)."""
        self._change(base, [changed(choice) for choice in base], order)

    def _change(self, base: Choices, other: Choices, order: list[int]) -> None:
        """Take the other choices for the smallest prefix of an order with which everything fits (by bisection)."""

        def fits(number: int) -> bool:
            some = set(order[:number])
            return self._evaluate([other[k] if k in some else c for k, c in enumerate(base)]) is not None

        low, high = 0, len(order)
        if fits(low) or not order or not fits(high):
            return
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)

    def _evaluate(self, choices: Choices, manner: Manner | None = None) -> _Found | None:
        """Dispatch choices, and record the best ones or the missing memory; return a result that fits."""
        training = Training(self.setting, choices, manner)
        outcome = dispatch(training.graph, self.setting.machine, training.program)
        if not isinstance(outcome, Dispatched):
            if self.best is None:
                self.overfull.append((outcome, training))
            return None
        found = _Found(training, outcome)
        self.take(found, outcome.makespan, rank=found.cost)
        return found

    def _walk(self, best: _Found, evaluations: int, *, moves_homes: bool = False) -> None:
        chance, setting = self.context.random(), self.setting
        helps = setting.may_be_helped
        worse = WORSE_HELPED if helps else WORSE
        current = best
        for _ in range(evaluations):
            if self.context.stopped or self.is_fastest:
                return
            choices = list(current.training.choices)
            if helps:
                choices = host_compute.changed(setting, choices, chance)
            elif moves_homes and chance.random() < MOVED:
                choices = self._moved(choices, chance)
            else:
                choices = self._changed(choices, chance)
            found = self._evaluate(choices)
            if found is not None and found.cost < best.cost:
                best = found
            if found is not None and found.makespan <= current.makespan * (1 + worse * chance.random() ** 2):
                current = found
            elif chance.random() < BACK:
                current = best

    def _trim(self) -> None:
        """Undo useless offloading: the local search considers the makespan alone."""
        for index in self.movable:
            best = self.best
            if best is None or best.training.manner != Manner() or self.context.stopped:
                return
            if best.training.choices[index].streams:
                changed = list(best.training.choices)
                changed[index] = replace(changed[index], streams=False)
                self._evaluate(changed)

    @property
    def is_fastest(self) -> bool:
        return self.best is not None and self.best.makespan <= self.fastest

    def _all_choices(self) -> Iterator[Choices]:
        movable, updated = set(self.movable), set(self.setting.updated)
        rows = [
            itertools.product(
                (False, True) if index in movable else (False,),
                self.updaters if index in updated else (0,),
                (False, True),
                self.setting.places if index in updated else [(None, None)],
            )
            for index in range(self.count)
        ]
        for row in itertools.product(*rows):
            yield [
                Choice(streams, updater, again, home=home, state_home=states)
                for streams, updater, again, (home, states) in row
            ]

    def _moved(self, choices: Choices, chance: random.Random) -> Choices:
        """Move the homes of a stage, or exchange them between two."""
        setting = self.setting
        one, other = chance.choice(setting.updated), chance.choice(setting.updated)
        places = [(choices[index].home, choices[index].state_home) for index in (one, other)]
        if places[0] == places[1] or chance.random() < 0.5:
            choices[one] = setting.placed_at(choices[one], chance.choice(setting.places))
        else:
            choices[one] = setting.placed_at(choices[one], places[1])
            choices[other] = setting.placed_at(choices[other], places[0])
        return choices

    def _changed(self, choices: Choices, chance: random.Random) -> Choices:
        """Move an update, or flip or exchange offloaded or recomputed stages."""
        dice = chance.random()
        if len(self.updaters) > 1 and dice < 0.3:
            index = chance.choice(self.setting.updated)
            other = self.updaters[self.updaters[0] == choices[index].updater]
            choices[index] = replace(choices[index], updater=other)
            return choices
        streams = dice < 0.65 and bool(self.movable)
        candidates = self.movable if streams else list(range(self.count))
        chosen = [choices[index].streams if streams else choices[index].again for index in candidates]
        yes = [index for index, flag in zip(candidates, chosen, strict=True) if flag]
        no = [index for index, flag in zip(candidates, chosen, strict=True) if not flag]
        exchange = yes and no and chance.random() < 0.5
        for index in (chance.choice(yes), chance.choice(no)) if exchange else (chance.choice(candidates),):
            choice = choices[index]
            if streams:
                choices[index] = replace(choice, streams=not choice.streams)
            else:
                choices[index] = replace(choice, again=not choice.again)
        return choices


def _bounds(problem: Problem) -> tuple[Bound, ...]:
    """Bound the makespan by the traffic on the links, if only the device computes.

    Inputs of tasks that are not on the device must come, and outputs elsewhere must go: each at most at the total
    bandwidth of the links there.
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
        (coming, [link.bandwidth for link in machine.links if link.source != device == link.target]),
        (leaving, [link.bandwidth for link in machine.links if link.target != device == link.source]),
    ):
        total: Number = sum(rate for rate in rates if rate is not None)
        if rates and None not in rates:
            values.append(raised(problem, Fraction(moved) / Fraction(total)))
    best = max(values, default=0)
    return (Bound(best, ALL_SCHEDULES, "parameters that must cross the links"),) if best else ()


def _crossing(search: _Search, makespan: Number, context: Context) -> tuple[Bound, ...]:
    """Bound the makespan if the processor next to the parameters computes, too."""
    if not search.setting.may_be_helped or search.is_fastest or context.stopped:
        return ()
    from remat_algorithms.offload.weights.host_bound import crossing_bound

    value = crossing_bound(search.setting, float(makespan), lambda: context.stopped)
    what = "parameters that must cross the links, and who works"
    return (Bound(raised(search.setting.problem, value), ALL_SCHEDULES, what),) if value > 0 else ()


def _notes(training: Training) -> tuple[str, ...]:
    """Return what the decisions of a result do not say: which runs the processor next to the parameters has."""
    forwards = sum(choice.helped > 0 for choice in training.choices)
    backwards = sum(choice.helped == 2 for choice in training.choices)
    if not forwards:
        return ()
    setting = training.setting
    name = setting.machine.processors[setting.helper or 0].name
    return (f"{name} runs {forwards} first forwards and {backwards} backwards",)
