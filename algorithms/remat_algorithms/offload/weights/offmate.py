"""`offmate`: shares of parameters, optimizer states and saved tensors that leave the device, with recomputation.

After Zhao, Eyraud-Dubois, Le Hellard, Gusak and Beaumont 2024, "OffMate: full fine-tuning of LLMs on a single GPU by
re-materialization and offloading". For each block of a model, their integer program chooses the recomputation, the
fractions of weights and activations to offload, and the part of the optimizer that runs on the CPU.

Here, the linear relaxation of such a program (`fraction_program`) is solved for several model budgets. Its shares are
rounded to whole values of whole stages: at thresholds, and with the errors carried from stage to stage, which keeps the
shares of a row of equal blocks. Each rounded choice becomes a schedule (`dispatch`). The fastest one that fits is
improved by changes of single stages; of very short chains, all choices are tried.

If the schedule chooses homes, this search has the parameters on the device and the states outside it. A second one
begins with the states of as many stages as fit on the device, and also moves homes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pydantic import Field

from remat.plugin import Context, LeastBudget, OptionError, Options, Problem, Proposal, Steps
from remat_algorithms.kit.incumbent import Incumbent
from remat_algorithms.kit.programs.program import FloatArray
from remat_algorithms.kit.programs.solver_status import Outcome
from remat_algorithms.kit.programs.solvers import LINEAR, solve_program
from remat_algorithms.offload.swaps.dispatch import Dispatched, Overfull, dispatch
from remat_algorithms.offload.weights.fraction_program import FractionProgram
from remat_algorithms.offload.weights.parameters import Choice, Choices, Place, Setting
from remat_algorithms.offload.weights.training_program import Manner, Training
from remat_algorithms.offload.weights.zero_family import least_that_fits, setting_of, with_places

BUDGETS = (1.0, 0.97, 0.94, 0.9, 0.86, 0.82, 0.78, 0.74, 0.7, 0.65, 0.6, 0.5)
"""Shares of the device for which the program is solved: rounded shares need more memory than it counts."""

THRESHOLDS = (0.25, 0.5, 0.75)


class OffMateOptions(Options):
    """Options of `offmate`."""

    evaluations: int = Field(
        300, ge=0, description="maximum number of changes of single stages that the local search tries"
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """The decisions for a stage.

    Attributes
    ----------
    choice : Choice
        Choice for its parameters, its update, and its forward.
    saved, input : bool
        Whether its saved tensors and its input leave until its backward.
    """

    choice: Choice
    saved: bool = False
    input: bool = False


Decisions = tuple[Decision, ...]


class PartlyAway(Training):
    """One iteration in which the activations of some stages leave."""

    def __init__(self, setting: Setting, decisions: Sequence[Decision]) -> None:
        self.decisions = tuple(decisions)
        choices: Choices = [decision.choice for decision in decisions]
        away = any(decision.saved or decision.input for decision in decisions)
        super().__init__(setting, choices, Manner(away=away, paced=False))

    def _leave(self, value: int, uses: list[int]) -> None:
        after = [position for position in uses if position > self.loss]
        if after and after[0] > self.last[-1]:
            user = self._in_backward_of(after[0])
            inputs = self.graph.reads[self.setting.stages[user].plain].tolist()
            decision = self.decisions[user]
            if decision.input if value in inputs else decision.saved:
                super()._leave(value, uses)


@dataclass(frozen=True, slots=True)
class _Found:
    training: PartlyAway
    outcome: Dispatched

    @property
    def decisions(self) -> Decisions:
        return self.training.decisions

    @property
    def steps(self) -> Steps:
        return with_places(self.training.setting, self.training.choices, self.outcome.steps)


def solve(problem: Problem, options: OffMateOptions, context: Context) -> Proposal:
    """Solve the program for several model budgets, round its shares, and improve the best schedule.

    Takes a chain with parameters, and a memory to which the device has links in both directions. If nothing fits, names
    the memory with which the smallest of some fixed choices does. O(L) columns for each program, and O(L log L) for
    each evaluation.

    Raises
    ------
    remat.OptionError
        If the chain has no parameters, or nothing can leave the device.
    """
    setting = setting_of(problem, "offmate")
    if setting.shelter is None:
        raise OptionError("offmate needs links to another memory and back", argument="machine")
    search = _Search(setting, context)
    search.start()
    if search.best is None:
        return Proposal(least=search.least_memory(), termination=context.termination)
    search.improve(options.evaluations)
    if setting.is_open:
        search.place(options.evaluations)
    return Proposal(steps=search.best.steps, makespan=search.makespan, termination=context.termination)


class _Search(Incumbent[_Found]):
    def __init__(self, setting: Setting, context: Context) -> None:
        super().__init__(context, lambda found: found.steps)
        self.setting = setting
        self.count = len(setting.stages)
        self.tried: dict[Decisions, bool] = {}
        self.overfull: list[tuple[Overfull, PartlyAway]] = []
        self.movable = setting.movable
        self.updaters = [0] if setting.helper is None else [setting.helper, 0]

    def start(self) -> None:
        """Try fixed choices, and the rounded ones of each model budget."""
        for place in self.setting.places:
            for decisions in self._fixed(place):
                self._evaluate(decisions)
            if self.best is not None:
                break
        capacity = self.setting.machine.memories[self.setting.device].capacity
        if capacity is None or self.count > MOST_STAGES:
            return
        for share in BUDGETS:
            if self.context.stopped:
                return
            program = FractionProgram(self.setting, int(capacity * share))
            answer = solve_program(program.program, LINEAR, self.context)
            if answer.outcome is Outcome.INFEASIBLE:
                return
            if answer.solution is not None:
                for decisions in self._rounded(program, answer.solution):
                    self._evaluate(decisions)

    def _fixed(self, place: Place = (None, None)) -> Iterator[Decisions]:
        """Yield choices that do not depend on the budget: nothing leaves, or everything, with and without reruns."""
        for updater in self.updaters:
            for away, again, streams in itertools.product((False, True), repeat=3):
                choices = [
                    Choice(streams and index in self.movable[:-1], updater, again, home=place[0], state_home=place[1])
                    for index in range(self.count)
                ]
                yield tuple(Decision(choice, away, away) for choice in choices)

    def _rounded(self, program: FractionProgram, solution: FloatArray) -> Iterator[Decisions]:
        shares = program.shares

        def row(columns: list[int]) -> list[float]:
            return [program.share(solution, column) for column in columns]

        columns = (shares.parameters, shares.updates, shares.recomputed, shares.saved, shares.inputs)
        rows = [row(one) for one in columns]
        yield self._decisions(*map(_diffused, rows))
        for least in THRESHOLDS:
            yield self._decisions(*([share >= least for share in one] for one in rows))

    def _decisions(
        self, streams: list[bool], helped: list[bool], again: list[bool], saved: list[bool], inputs: list[bool]
    ) -> Decisions:
        helper = 0 if self.setting.helper is None else self.setting.helper
        return tuple(
            Decision(
                Choice(streams[index] and index in self.movable, helper if helped[index] else 0, again[index]),
                saved[index],
                inputs[index],
            )
            for index in range(self.count)
        )

    def _evaluate(self, decisions: Decisions) -> bool:
        """Dispatch a choice; return whether it is the best one."""
        if decisions in self.tried or self.context.stopped:
            return False
        try:
            training = PartlyAway(self.setting, decisions)
        except OptionError:  # no path to this processor
            self.tried[decisions] = False
            return False
        outcome = dispatch(training.graph, self.setting.machine, training.program)
        self.tried[decisions] = isinstance(outcome, Dispatched)
        if isinstance(outcome, Overfull):
            self.overfull.append((outcome, training))
            return False
        rank = outcome.makespan, len(training.transfers)
        return self.take(_Found(training, outcome), outcome.makespan, rank=rank)

    def improve(self, evaluations: int) -> None:
        """Try all choices if they are few; otherwise change single stages until no change helps."""
        options = [list(self._options(index)) for index in range(self.count)]
        ways = 1
        for one in options:
            ways = min(ways * len(one), evaluations + 1)
        if ways <= evaluations:
            for decisions in itertools.product(*options):
                self._evaluate(decisions)
            return
        left, stale = evaluations, 0
        places = itertools.cycle(
            (index, number) for index in reversed(range(self.count)) for number in range(len(options[index]))
        )
        total = sum(map(len, options))
        while left > 0 and stale < total and not self.context.stopped:
            assert self.best is not None
            index, number = next(places)
            stale += 1
            known = self.best.decisions
            key = (*known[:index], options[index][number], *known[index + 1 :])
            if key in self.tried:
                continue
            left -= 1
            if self._evaluate(key):
                stale = 0

    def place(self, evaluations: int) -> None:
        """Hold the states of as many stages as fit on the device, then change homes and decisions of single stages."""
        assert self.best is not None
        states = self.setting.places[-1][1]
        if states is not None:
            left = self.best.decisions
            held = tuple(self._at(one, (one.choice.home, states)) for one in left)
            for order in (range(self.count), range(self.count)[::-1]):
                self._most(left, held, list(order))
        tries, improves = evaluations, True
        while improves:
            improves = False
            for index in reversed(range(self.count)):
                for changed in self._changes(index):
                    known = self.best.decisions
                    key = (*known[:index], changed, *known[index + 1 :])
                    if key in self.tried:
                        continue
                    if tries <= 0 or self.context.stopped:
                        return
                    tries -= 1
                    improves = self._evaluate(key) or improves

    def _most(self, left: Decisions, held: Decisions, order: list[int]) -> None:
        """Replace decisions of as many first stages of an order as fit (by bisection)."""

        def fits(number: int) -> bool:
            some = set(order[:number])
            key = tuple(held[k] if k in some else one for k, one in enumerate(left))
            self._evaluate(key)
            return self.tried.get(key, False)

        low, high = 0, len(order) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)

    def _at(self, decision: Decision, place: Place) -> Decision:
        return replace(decision, choice=self.setting.placed_at(decision.choice, place))

    def _changes(self, index: int) -> Iterator[Decision]:
        """Yield changes of one decision for a stage: its homes, or whether something leaves or runs again."""
        assert self.best is not None
        now = self.best.decisions[index]
        if index in self.setting.updated:
            yield from (self._at(now, place) for place in self.setting.places)
        yield replace(now, choice=replace(now.choice, again=not now.choice.again), saved=False)
        yield replace(now, choice=replace(now.choice, again=False), saved=not now.saved)
        yield replace(now, input=not now.input)
        if index in self.movable:
            yield replace(now, choice=replace(now.choice, streams=not now.choice.streams))

    def _options(self, index: int) -> Iterator[Decision]:
        """Yield the possible decisions for a stage."""
        updaters = self.updaters if index in self.setting.updated else [0]
        streams = (False, True) if index in self.movable else (False,)
        flags = (False, True)
        for streaming, updater, again, saved, inputs in itertools.product(streams, updaters, flags, flags, flags):
            if not (again and saved):
                yield Decision(Choice(streaming, updater, again), saved, inputs)

    def least_memory(self) -> LeastBudget | None:
        """Name the minimum memory at which one of the fixed choices fits."""
        fixed = {decisions for place in self.setting.places for decisions in self._fixed(place)}
        overfull = [entry for entry in self.overfull if entry[1].decisions in fixed]
        return least_that_fits(self.setting.machine, overfull)


MOST_STAGES = 250
"""Maximum number of stages for which the program is solved: its memory rows are quadratic."""


def _diffused(shares: list[float]) -> list[bool]:
    """Round shares so that each sum of first ones is met as closely as possible."""
    found, owed = [], 0.0
    for share in shares:
        owed += share
        found.append(owed >= 0.5)
        owed -= found[-1]
    return found
