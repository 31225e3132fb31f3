"""`remat-offload-best`: keep, recompute or offload each value of a chain; anytime.

1. The first starts are the best known schedule, those of `rotor` and `offload-greedy`, and intermediate ones: rotor's
   schedules for larger budgets, with the excess offloaded, from coarse to fine.
2. A program for one moment of every schedule bounds them all (`remat_algorithms.offload.chains.bound`), and its
   solution is another start.
3. A local search over bit matrices (`remat_algorithms.chain.phase_matrix`: the forwards that run before each backward)
   tries a quarter of its rounds. A round removes some forwards, adds some, or only changes the ranking for offloading.
   It then selects gaps in that ranking until everything fits, and the dispatcher determines the time. The search
   accepts slightly slower plans, and returns to the best one from time to time.
4. Further starts are the schedules of `offload-dp`, `pofo` and `chain-best`. The rules of the literature (`tflms`,
   `capuchin`, `superneurons` and similar ones) also run, and their best schedule is the answer if none is faster. Short
   chains are also solved by `poet`.
5. The rest is local search. Tiny chains are solved at the end by the programs of `offload-exact`.

Most rounds end early, because the runs alone, or the bytes to offload and fetch, already take too long. The solve ends
when the makespan meets the bound.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from remat.plugin import (
    ALL_SCHEDULES,
    Algorithm,
    BoolArray,
    Bound,
    Context,
    LeastBudget,
    Number,
    Options,
    Problem,
    Proposal,
    Steps,
    Termination,
)
from remat_algorithms.chain.chain_best import ChainBestOptions
from remat_algorithms.chain.chain_best import solve as solve_chain_best
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.chain.rotor.rotor import RotorOptions, Setting
from remat_algorithms.chain.rotor.rotor import solve as solve_rotor
from remat_algorithms.chain.unsupported import refuse_alternatives
from remat_algorithms.dag.first_schedule import report_first
from remat_algorithms.dag.literature.catalogue import ALGORITHMS as LITERATURE
from remat_algorithms.joint.adjoint_best.initial_schedules import judged, whole_values
from remat_algorithms.kit.delegation import asked
from remat_algorithms.offload.chains.bound import SOURCE, ChainBound, Solution
from remat_algorithms.offload.chains.bound import WORK as BOUND_WORK
from remat_algorithms.offload.exact.catalogue import ALGORITHMS as EXACT
from remat_algorithms.offload.offload_greedy import greedy_plan, greedy_plans, rankings
from remat_algorithms.offload.pofo.pofo import OFFLOAD_SLOTS, POFO_SLOTS, modelled_plans, rotor_plan
from remat_algorithms.offload.rules.catalogue import ALGORITHMS as RULES
from remat_algorithms.offload.swaps.fluid_bound import volume_bound
from remat_algorithms.offload.swaps.gap_selection import BestPlan, Choice, Plan, quicker
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, proposal_of
from remat_algorithms.offload.swaps.routes import Route, routes
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap

BETWEEN = 32
"""Number of budgets above the given one whose rotor schedules are starts."""

SEARCHING = ("swapadvisor", "knapsack-ilp", "kusumoto-exact", "treewidth")
"""Rules with a long search, which run for short chains only."""

SHORT, POET_WORK = 8, 1.0
"""Maximum number of stages for these rules and for `poet`, and the work limit of `poet`, in CP-SAT's units: usually
negligible.
"""

TINY, WHOLE_WORK = 4, 0.1
"""Maximum number of stages for the programs of `offload-exact`, and the work limit of each, in CP-SAT's units."""

MOST_ASKED = 100
"""Maximum number of stages for the algorithms for one memory and any graph."""

ROUNDS, WORK = 4000, 100_000
"""Maximum rounds of local search, and number of stages that limits them for long chains, whose rounds take O(L)."""

SLACKS = (0.01, 0.03, 0.06)
"""Accepted slowdowns of a round relative to the best, as shares; each excursion draws one."""

LATER = 0.15
"""Share of the swaps whose transfers a round delays."""

BACK = 60
"""Rounds without improvement after which the search returns to the best."""


class OffloadBestOptions(Options):
    """Options of `remat-offload-best`."""

    iterations: int | None = Field(
        None,
        ge=0,
        description="number of rounds of the local search; if set, the result depends only on the seed. Default: what "
        "takes a few seconds",
    )
    work: float = Field(
        BOUND_WORK,
        ge=0,
        allow_inf_nan=False,
        description="work limit for raising the bound above its relaxations, in CP-SAT's deterministic units (about 1 "
        "s each); 0: no programs, and no `poet` or `offload-exact` on short chains",
    )


def solve(problem: Problem, options: OffloadBestOptions, context: Context) -> Proposal:
    """Solve a chain, by recomputation and offloading together.

    Accepts instances of kind `chain`. Without a route out of the processor's memory and back, the answer is that of
    `rotor`. Within the same time it is never slower than `rotor`, `chain-best`, `offload-greedy`, `offload-dp`, `pofo`
    and the rules for offloading without a search; on short chains, also than those with a search and `poet`. Its bound
    holds for all schedules.

    Raises
    ------
    remat.OptionError
        If a stage has variants.
    """
    refuse_alternatives(problem, "remat-offload-best")
    known = None if options.iterations is not None else context.known_steps
    report_first(problem, context)
    ways = routes(problem.machine)
    reference = Choice(problem, Order.of(problem), ways)
    if not ways or reference.fits:
        return solve_rotor(problem, RotorOptions(gap=None), context)
    search = _Search(problem, ways, context)
    if known is not None:
        search.resume(known)
    search.consider(rotor_plan(problem, ways, context))
    search.consider(greedy_plan(reference, lambda: context.stopped))
    search.relax()
    search.exchanges()
    search.close(options.work)
    rounds = options.iterations
    if rounds is None:
        rounds = min(ROUNDS, WORK // problem.chain.length)
    search.walk(rounds // 4)
    search.modelled()
    search.alone()
    search.rules(programs=options.work > 0)
    search.walk(rounds - rounds // 4)
    if options.work > 0:
        search.whole_values()
    proposal = search.proposal(reference)
    limited = options.iterations is not None and not context.stopped and not search.met
    return replace(proposal, termination=Termination.ITERATION_LIMIT) if limited else proposal


class _Search(BestPlan):
    """The best known plan, and the sources of better ones."""

    def __init__(self, problem: Problem, ways: tuple[Route, ...], context: Context) -> None:
        super().__init__(problem, context)
        self.ways = ways
        self.by_rule: Proposal | None = None
        self.rule_makespan: Number = math.inf
        self.proved = ChainBound(problem)

    @property
    def quickest(self) -> Number:
        """The makespan of the best schedule, of any algorithm; infinite without one."""
        return min(self.makespan, self.rule_makespan)

    @property
    def met(self) -> bool:
        """Whether the best schedule is proved optimal among all."""
        return not math.isinf(self.quickest) and not quicker(self.proved.value, self.quickest)

    @property
    def done(self) -> bool:
        """Whether the best schedule is proved optimal, or the time is over."""
        return self.context.stopped or self.met

    def relax(self) -> None:
        """Bound all schedules."""
        self.proved.relax(lambda: self.done)
        self._tell()

    def close(self, work: float) -> None:
        """Raise the bound, and try the solutions of its programs."""
        for solution in self.proved.whole(work, self.context, lambda: self.done):
            if not self.context.stopped:
                self._realise(solution)
        self._tell()

    def _tell(self) -> None:
        self.context.report(bound=min(self.proved.value, self.quickest), scope=ALL_SCHEDULES)

    def _realise(self, solution: Solution) -> None:
        """Try the runs of a solution, and offload its offloaded values first."""
        choice = self._choice(Phases.of(self.problem.chain).tasks(solution.runs))
        self._consider_rankings(choice)
        if choice.fits or not self._promising(choice, 1.0):
            return
        gaps = choice.order.gaps
        for ranking in rankings(choice):
            first = [gap for gap in ranking.tolist() if gaps[gap].value in solution.away]
            rest = [gap for gap in ranking.tolist() if gaps[gap].value not in solution.away]
            self.consider(choice.plan(choice.select([*first, *rest])))

    def resume(self, known: Steps) -> None:
        """Start from a known schedule: from its runs, with transfers of its own or under each of the rankings."""
        start = judged(self.problem, "", Proposal(steps=known))
        if start is not None:
            self._keep(start.steps, start.makespan)
        if Phases.of(self.problem.chain).matrix(known.runs.tolist()) is not None:
            self.consider_tasks(known.runs.tolist())

    def consider_tasks(self, tasks: list[int]) -> None:
        """Try some runs under each of the rankings for offloading."""
        self._consider_rankings(self._choice(tasks))

    def _choice(self, tasks: list[int]) -> Choice:
        return Choice(self.problem, Order(self.problem.graph, self.problem.machine, tasks), self.ways)

    def _consider_rankings(self, choice: Choice) -> None:
        if not self._promising(choice, 1.0):
            return
        for plan in greedy_plans(choice, lambda: self.context.stopped):
            self.consider(plan)

    def exchanges(self) -> None:
        """Try the plans that recompute for larger budgets, and offload what is too much."""
        for tasks in self._relaxed() if not self.done else ():
            if self.done:
                return
            self.consider_tasks(tasks)

    def alone(self) -> None:
        """Try the plans of the algorithms for one memory."""
        if self.done:
            return
        options = ChainBestOptions(iterations=None, states=None, work=0)
        alone = solve_chain_best(self.problem, options, self.context.aside())
        if alone.steps is not None:
            self.consider_tasks(alone.steps.runs.tolist())
        if alone.optimal_within is None and self.problem.chain.length <= MOST_ASKED:
            # Algorithms for one memory; a proof of their optimum makes them superfluous.
            for entry in LITERATURE:
                self._ask(entry)

    def modelled(self) -> None:
        """Try the proposals of the tables of `offload-dp` and `pofo`."""
        for slots, remake in ((OFFLOAD_SLOTS, False), (POFO_SLOTS, True)):
            if self.done:
                return
            for found in modelled_plans(self.problem, self.ways, slots, self.context, remake=remake):
                self.consider(found.plan)

    def rules(self, *, programs: bool) -> None:
        """Run the other rules, and `poet`: their runs are starts, and the fastest schedule is kept."""
        for entry in RULES:
            self._ask(entry)
        if programs and self.problem.chain.length <= SHORT:
            for entry in EXACT:
                if entry.name == "poet":
                    self._ask(entry, {"work": POET_WORK})

    def _ask(self, entry: Algorithm, given: Mapping[str, Any] | None = None) -> None:
        searching = entry.name in SEARCHING and self.problem.chain.length > SHORT
        if searching or not entry.accepts(self.problem.kind) or self.done:
            return
        proposal = asked(entry, self.problem, self.context, given, share=0.1)
        if proposal is None or proposal.steps is None:
            return
        makespan = proposal.makespan
        if proposal.steps.start is None or makespan is None:
            start = judged(self.problem, entry.name, proposal)
            if start is None:
                return
            makespan = start.makespan
        self._keep(proposal.steps, makespan)
        self.consider_tasks(proposal.steps.runs.tolist())

    def proposal(self, reference: Choice) -> Proposal:
        """Return the answer."""
        context, value = self.context, self.proved.value
        if self.best is not None and not self.rule_makespan < self.makespan:
            found = proposal_of(self.best, context, source=SOURCE)
        elif self.by_rule is not None:
            found = replace(self.by_rule, termination=context.termination)
        elif self.proved.impossible and reference.budget is not None:
            least = LeastBudget(reference.budget + 1, None, False, reference.order.device)
            return Proposal(infeasible_within=ALL_SCHEDULES, least=least)
        else:
            nothing = nothing_fits(reference, "remat-offload-best", within=None)
            return replace(nothing, bounds=(Bound(value, ALL_SCHEDULES, SOURCE),), termination=context.termination)
        assert found.makespan is not None
        bound = Bound(min(value, found.makespan), ALL_SCHEDULES, SOURCE)
        ended = Termination.COMPLETED if self.met else found.termination
        return replace(found, bounds=(bound,), optimal_within=ALL_SCHEDULES if self.met else None, termination=ended)

    def whole_values(self) -> None:
        """Let constraint programming search for faster schedules of tiny chains."""
        if self.problem.chain.length > TINY or self.done:
            return
        known = None if math.isinf(self.quickest) else self.quickest
        for start in whole_values(self.problem, self.context, WHOLE_WORK, known):
            self._keep(start.steps, start.makespan)

    def _keep(self, steps: Steps, makespan: Number) -> None:
        """Keep a schedule of another algorithm if it is the fastest of these."""
        if makespan < self.rule_makespan:
            self.by_rule, self.rule_makespan = Proposal(steps=steps, makespan=makespan), makespan
            if quicker(makespan, self.makespan):
                self.context.report(steps, makespan=makespan)

    def walk(self, rounds: int) -> None:
        """Improve the best plan, one round at a time."""
        if self.best is None:
            return
        phases = Phases.of(self.problem.chain)
        best = phases.matrix(self.best.order.tasks)
        if best is None:
            return
        draw = self.context.random()
        current, since, slack = best.copy(), 0, SLACKS[0]
        for number in range(rounds):
            if self.done:
                return
            changed = _changed(current, draw)
            makespan = self.best.makespan
            plan = self._attempt(phases.tasks(changed), draw, slack)
            since += 1
            if plan is None:
                pass
            elif quicker(plan.makespan, makespan):
                self.consider(plan, f"round {number + 1:,}")
                current, best, since = changed, changed, 0
            elif plan.makespan <= makespan * (1 + slack):
                current = changed
            if since >= BACK:
                current, since, slack = best, 0, draw.choice(SLACKS)

    def _attempt(self, tasks: list[int], draw: random.Random, slack: float) -> Plan | None:
        """Dispatch some runs with a random ranking for offloading; None if that is too slow or does not fit."""
        choice = self._choice(tasks)
        if not self._promising(choice, 1 + slack):
            return None
        gaps = choice.candidates
        size, length = choice.size[gaps].astype(np.float64), choice.length[gaps].astype(np.float64)
        idle = np.maximum(length - draw.random() * choice.round_trip[gaps], length * 1e-3)
        noise = np.array([draw.gauss(0, 0.3) for _ in range(len(gaps))])
        score = np.log(np.maximum(idle, 1e-30)) + draw.random() * np.log(np.maximum(size, 1)) + noise
        chosen = choice.select(gaps[np.argsort(-score, kind="stable")])
        swaps = None if chosen is None else choice.routed(chosen)
        if swaps is None:
            return None
        # An early transfer may delay a more urgent one, on the channel or in memory.
        swaps = [_later(swap, choice, draw) if draw.random() < LATER else swap for swap in swaps]
        return choice.dispatched(swaps)

    def _promising(self, choice: Choice, factor: float) -> bool:
        """Whether a plan for these runs may take less than `factor` times the best makespan."""
        return self.best is None or volume_bound(choice) < self.best.makespan * factor

    def _relaxed(self) -> Iterator[list[int]]:
        """Yield rotor's runs for larger and larger budgets."""
        setting = Setting(self.problem, self.context)
        assert self.problem.budget is not None
        whole, low = setting.whole.need, max(0, self.problem.budget - setting.resident)
        rooms = [low + (whole - low) * k // BETWEEN for k in range(BETWEEN)]
        nothing, seen = setting.nothing_recomputed().steps, set[int]()
        if nothing is not None:
            seen.add(0)
            yield nothing.runs.tolist()
        found = setting.search(rooms, RotorOptions(gap=None)).found if low < whole else {}
        for room in sorted(found, key=lambda room: _by_halves(rooms.index(room))):
            own = found[room]
            if own.excess is not None and own.excess not in seen:
                seen.add(own.excess)
                yield own.runs()


def _by_halves(place: int) -> int:
    """Return the sort key of a place below `BETWEEN`: the first one, then the middle, the quarters, and so on."""
    return int(f"{place:0{BETWEEN.bit_length() - 1}b}"[::-1], 2)


def _later(swap: Swap, choice: Choice, draw: random.Random) -> Swap:
    """Delay a transfer of a swap until a specific run."""
    gap = choice.order.gaps[swap.gap]
    if draw.random() < 0.3 and gap.after >= 0:
        return replace(swap, leave_with=gap.after)
    return replace(swap, return_with=draw.randint(gap.after + 1, gap.before - 1))


def _changed(runs: BoolArray, draw: random.Random) -> BoolArray:
    """Return a matrix with a few forwards fewer, or more, than `runs`; phase L always runs all of them."""
    changed = runs.copy()
    length = runs.shape[1]
    kind = draw.random()
    if kind < 0.15:
        return changed  # only another ranking
    phase = draw.randrange(length)
    if kind < 0.6:
        phases, stages = np.nonzero(changed[:length])
        if len(phases):
            at = draw.randrange(len(phases))
            phase, stage = int(phases[at]), int(stages[at])
            reach = draw.choice((1, 1, 2, 4, length))
            changed[phase, stage : min(stage + reach, phase + 1)] = False
            return changed
    # A stage may be recomputed in its own phase, right before its backward, or in that of a later stage.
    stage = draw.randrange(phase + 1)
    reach = draw.choice((1, 1, 2, 4, length))
    changed[phase, stage : min(stage + reach, phase + 1)] = True
    return changed
