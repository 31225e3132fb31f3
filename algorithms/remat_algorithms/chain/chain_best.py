"""`chain-best`: an anytime solver for heterogeneous chains, beyond memory-persistent schedules.

1. The search starts from the fastest schedule of `rotor-float` (never worse than `rotor`), `periodic`, `chen-greedy`
   and `revolve-chain`. A schedule without recomputation is returned immediately. For a budget that is too small, the
   answer is that of `rotor-float`.
2. A short search over the live sets (`chain-exact`) solves small chains, and gives a bound for those up to 20 stages.
3. A local search over bit matrices follows (`chain.phase_matrix`: which forwards run before which backward). Each round
   adds a few sweeps of forwards. It then removes dispensable forwards in a random order that favours expensive ones. A
   slightly worse result is accepted, and the search occasionally returns to the best one.

The bound for all schedules is the largest of three: the bound of step 2, the minimum recomputation after each moment,
and integer programs over several moments (`remat_algorithms.chain.bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import Field

from remat.plugin import (
    ALL_SCHEDULES,
    BoolArray,
    Bound,
    Context,
    Number,
    Options,
    Problem,
    Proposal,
    Termination,
    run_in_order,
)
from remat_algorithms.chain.bounds.cover import recompute_bound
from remat_algorithms.chain.bounds.gap_closing import close
from remat_algorithms.chain.bounds.moment_facts import Moments
from remat_algorithms.chain.bounds.one_moment import least_remade
from remat_algorithms.chain.coarsening import coarse_schedules
from remat_algorithms.chain.exact.chain_exact import ONE_MEMORY, ChainExactOptions, improve
from remat_algorithms.chain.floating.rotor_float import RotorFloatOptions, total_time
from remat_algorithms.chain.floating.rotor_float import solve as solve_rotor_float
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.chain.revolve_chain import (
    ChenGreedyOptions,
    RevolveChainOptions,
    solve_chen_greedy,
    solve_revolve_chain,
)
from remat_algorithms.chain.segments import Segments
from remat_algorithms.chain.strategies import PeriodicOptions, solve_periodic
from remat_algorithms.chain.unsupported import refuse_alternatives

MOST_STAGES = 1500
"""Maximum number of stages for local search; above it, a round would take a second."""

LONG = 1000
"""Number of stages above which chains are solved by groups of stages (`remat_algorithms.chain.coarsening`)."""

MOST_FRONTS, MOST_COVERED = 400, 5000
"""Maximum number of stages for the exact bound of each moment, and for the cover bound, which takes O(L^2 log L)."""

MOST_CLOSED, WORK_CLOSING = 200, 2.0
"""Maximum number of stages for programs over several moments, and their limit in CP-SAT's units (a second each)."""

TINY = 12
"""Maximum number of stages for which the live-set search usually suffices; loading local search would take longer."""

SEARCHED = 1000
"""States that the live-set search expands on chains of up to `SHORT` stages; it solves no longer ones."""

SHORT = 20

CUT_OFF = 1e-11
"""Share of the makespan that truncated ticks may take from a bound, if times are not integers."""

ROUNDS, WORK = 20_000, 40_000_000
"""Maximum number of rounds of the local search, and maximum total work; a round takes O(L^2)."""

PATIENCE = 0.5
"""Share of these rounds after which a local search without improvement ends."""


class ChainBestOptions(Options):
    """Options of `chain-best`."""

    iterations: int | None = Field(
        None,
        ge=0,
        description="number of rounds of the local search; if set, the result depends only on the seed. Default: what "
        "takes a few seconds, at most 20,000 (0 for up to 12 stages), stopping early after half of them without "
        "improvement",
    )
    states: int | None = Field(
        None,
        ge=0,
        description="maximum number of states that the search over live sets expands; default: 1000 for up to 20 "
        "stages, otherwise 0",
    )
    work: float = Field(
        WORK_CLOSING,
        ge=0,
        allow_inf_nan=False,
        description="work limit for raising the bound above the best bound of a single moment, in CP-SAT's "
        "deterministic units (about 1 s each)",
    )


def solve(problem: Problem, options: ChainBestOptions, context: Context) -> Proposal:
    """Solve a chain.

    Takes instances of kind `chain` and uses only the working memory. Never worse than `rotor` and `rotor-float` within
    the same time; optimal if the bound is met.

    Raises
    ------
    remat.OptionError
        If a stage has several saving forwards.
    """
    refuse_alternatives(problem, "chain-best")
    length = problem.chain.length
    if length > LONG and (proposal := _by_groups(problem, context)) is not None:
        return proposal
    states = options.states
    if states is None:
        states = SEARCHED if length <= SHORT else 0
    floating = solve_rotor_float(problem, RotorFloatOptions(certificate=False, slots=None), context)
    start = improve(problem, floating, ChainExactOptions(states=states), context)
    if start.steps is None:
        return _without_schedule(floating, start)
    if start.optimal_within is not None or problem.budget is None:
        return start
    small = len(problem.machine.memories) == 1 and len(problem.machine.processors) == 1
    scope = ALL_SCHEDULES if small else ONE_MEMORY
    walk = _Walk(problem, start.steps.runs.tolist(), options.iterations)
    bounds = _Bounds(problem, walk, [bound.value for bound in start.bounds])
    before = walk.time
    if length <= MOST_STAGES and not context.stopped:
        walk.consider(_strategies(problem, context))
        context.report(bound=min(bounds.value, walk.time), scope=scope)

        def report() -> None:
            steps = run_in_order(problem.graph, problem.machine, walk.tasks)
            context.report(steps, makespan=walk.time, message=f"round {walk.round:,}")

        walk.go(context, report, lambda: bounds.met)
        if bounds.close(options.work, context, scope):
            report()
    ended = Termination.COMPLETED if bounds.met or options.iterations is None else Termination.ITERATION_LIMIT
    return Proposal(
        steps=run_in_order(problem.graph, problem.machine, walk.tasks),
        makespan=walk.time,
        bounds=(Bound(walk.time if bounds.met else min(bounds.value, walk.time), scope, "chain-best"),),
        optimal_within=scope if bounds.met else floating.optimal_within if walk.time == before else None,
        termination=context.termination if context.stopped and not bounds.met else ended,
    )


def _by_groups(problem: Problem, context: Context) -> Proposal | None:
    """Solve a long chain by groups of its stages; None if everything fits, or if no schedule is found."""
    chain, budget = problem.chain, problem.budget
    segments = Segments.of(chain)
    if budget is None or budget >= segments.saved_whole_need() + int(chain.activation_size[0]) + chain.static_memory:
        return None
    best: list[int] | None = None
    for runs in coarse_schedules(problem, context):
        best = runs
        steps = run_in_order(problem.graph, problem.machine, runs)
        context.report(steps, makespan=total_time(problem, runs), message="groups of stages")
    if best is None:
        return None
    small = len(problem.machine.memories) == 1 and len(problem.machine.processors) == 1
    time = total_time(problem, best)
    bounds: tuple[Bound, ...] = ()
    if chain.length <= MOST_COVERED and not context.stopped:
        value = problem.no_recompute_time + recompute_bound(chain, budget)
        bounds = (Bound(min(value, time), ALL_SCHEDULES if small else ONE_MEMORY, "chain-best"),)
    return Proposal(
        steps=run_in_order(problem.graph, problem.machine, best),
        makespan=time,
        bounds=bounds,
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )


def _without_schedule(floating: Proposal, searched: Proposal) -> Proposal:
    """Propose for a budget without a schedule: a proof over all schedules, or the answer of `rotor-float`."""
    if searched.infeasible_within is None:
        return floating
    if searched.least is not None and searched.least.sufficient:
        return searched
    return replace(searched, least=floating.least)


def _rounds(length: int) -> int:
    return 0 if length <= TINY else min(ROUNDS, WORK // length**2)


def _strategies(problem: Problem, context: Context) -> list[list[int]]:
    aside = context.aside()
    proposals = (
        solve_periodic(problem, PeriodicOptions(segments=None), aside),
        solve_chen_greedy(problem, ChenGreedyOptions(limit=None), aside),
        solve_revolve_chain(problem, RevolveChainOptions(saved=False), aside),
        solve_revolve_chain(problem, RevolveChainOptions(saved=True), aside),
    )
    return [proposal.steps.runs.tolist() for proposal in proposals if proposal.steps is not None]


class _Bounds:
    """Bound for all schedules, compared with the best schedule of the local search."""

    def __init__(self, problem: Problem, walk: _Walk, known: Sequence[Number]) -> None:
        assert problem.budget is not None
        self._problem, self._walk, self._base = problem, walk, problem.no_recompute_time
        self._moments = Moments.of(problem.chain, problem.budget)
        self._least: list[int] = []
        self.value: Number = max(known, default=self._base)
        if problem.chain.length <= MOST_FRONTS:
            self._least = least_remade(self._moments, self._moments.excess(walk.tasks))
            self._raise(max(self._least))
        else:
            self.value = max(self.value, self._base + recompute_bound(problem.chain, problem.budget))

    @property
    def met(self) -> bool:
        """Whether the best schedule meets the bound, up to the truncation of ticks."""
        time = self._walk.time
        return time <= self.value or (isinstance(time, float) and time <= self.value * (1 + CUT_OFF))

    def _raise(self, ticks: int) -> None:
        self.value = max(self.value, self._base + self._moments.time(ticks))

    def close(self, work: float, context: Context, scope: str) -> bool:
        """Solve programs over several moments; return whether they found a better schedule."""
        walk = self._walk
        if self.met or not self._least or self._moments.length > MOST_CLOSED:
            return False

        def told(ticks: int) -> None:
            self._raise(ticks)
            context.report(bound=min(self.value, walk.time), scope=scope)

        most = self._moments.excess(walk.tasks)
        closed = close(self._moments, walk.phases, self._least, most, context, room=walk.room, work=work, told=told)
        return closed.runs is not None and walk.take(closed.runs)


class _Walk:
    """Best schedule found, and the local search that improves it."""

    def __init__(self, problem: Problem, tasks: list[int], rounds: int | None) -> None:
        assert problem.budget is not None, "without a budget everything fits"
        self._problem = problem
        self.phases = Phases.of(problem.chain)
        self.room = problem.budget - problem.chain.static_memory
        self._rounds = _rounds(problem.chain.length) if rounds is None else rounds
        self._patience = self._rounds if rounds is not None else int(PATIENCE * self._rounds)
        self.tasks: list[int] = tasks
        self.time: Number = total_time(problem, tasks)
        self.round = 0

    def consider(self, candidates: list[list[int]]) -> None:
        """Accept a schedule if it fits and is faster."""
        for tasks in candidates:
            time = total_time(self._problem, tasks)
            if time < self.time and self.phases.peak(tasks) <= self.room:
                self.tasks, self.time = tasks, time

    def take(self, runs: BoolArray) -> bool:
        """Accept a feasible matrix if it is faster."""
        tasks = self.phases.tasks(runs)
        time = total_time(self._problem, tasks)
        if time >= self.time:
            return False
        self.tasks, self.time = tasks, time
        return True

    def go(self, context: Context, report: Callable[[], None], met: Callable[[], bool]) -> None:
        """Run the local search until its rounds, its patience, the context or the bound ends it."""
        if self._rounds == 0 or met():
            return
        phases = self.phases
        current: BoolArray | None = phases.matrix(self.tasks)
        if current is None or not current[:-1].any():
            return
        if phases.peak(phases.tasks(current)) > self.room:
            return  # contains a saving forward before the last one
        from remat_algorithms.chain import phase_matrix_kernel

        walk = phase_matrix_kernel.walk_from(phases, current, context.random().getrandbits(64) | 1)
        improve = phase_matrix_kernel.IMPROVE.bind(phase_matrix_kernel.facts_of(phases, self.room), walk)
        chunk = max(1, 500_000 // (phases.length + 1) ** 2)
        last = 0
        while self.round < min(self._rounds, last + self._patience) and not context.stopped and not met():
            rounds = min(chunk, self._rounds - self.round)
            found = improve(rounds)
            self.round += rounds
            if found >= 0:
                last = self.round
                if self.take(walk.best):
                    report()
