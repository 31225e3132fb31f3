"""`poet`: recomputation and paging by integer programming (after Patil et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from remat.placement import Unplaceable, place
from remat.plugin import (
    ALL_SCHEDULES,
    Algorithm,
    Context,
    Number,
    OptionError,
    Options,
    Problem,
    Proposal,
    Steps,
    Termination,
    run_in_order,
)
from remat_algorithms.dag.programs.frontier import FRONTIER
from remat_algorithms.dag.programs.greedy_start import greedy_schedule
from remat_algorithms.dag.programs.search import Search
from remat_algorithms.kit.delegation import asked
from remat_algorithms.kit.incumbent import Incumbent
from remat_algorithms.kit.makespan import makespan_of, timed
from remat_algorithms.kit.programs.solver_status import Outcome
from remat_algorithms.kit.programs.solvers import solve_program
from remat_algorithms.offload.exact.integer_scaling import transfer_time
from remat_algorithms.offload.poet.cp_sat_program import SatProgram
from remat_algorithms.offload.poet.energy_costs import EnergyCosts
from remat_algorithms.offload.poet.energy_search import least_energy
from remat_algorithms.offload.poet.frontier_groups import entries, even_ends, grouped
from remat_algorithms.offload.poet.neighbourhood_search import Descent
from remat_algorithms.offload.poet.program import Choice, EnergyGoal, Pager, PoetProgram
from remat_algorithms.offload.poet.steps import steps_of

SCOPE = f"{FRONTIER}, paging by whole stages"
CP_SAT = "cp-sat"

MOST_ENTRIES = 1_000_000
"""Maximum estimated coefficients of a program; for larger graphs, stages are merged."""

MOST_WITHOUT_START = 200_000
"""The same, without an initial schedule."""

MOST_AT_ONCE = 60_000
"""Maximum coefficients of a program that is solved as a whole."""

SMALL = 400
"""Maximum (stage, task) pairs of a program that is solved without an initial schedule."""

DEFAULT_WORK = 1.0
"""Maximum work without a limit from the caller, in CP-SAT's units: about ten to forty seconds."""

NAME = "poet"
LARGEST_DEADLINE = 1e300
UNSOLVED = "no solution of the program gives a schedule that fits; that proves nothing beyond this program"
UNFINISHED = "the program was not solved within its limits of work and time, and found no schedule"
ROUNDED = "a solution of the program does not fit, by the solver's rounding"


class PoetOptions(Options):
    """Options of `poet`."""

    objective: Literal["makespan", "energy"] = Field(
        default="makespan", description="what to minimize; `energy` requires an instance with energies"
    )
    deadline: int | float | None = Field(
        default=None,
        ge=0,
        le=LARGEST_DEADLINE,
        description="latest end of the schedule, in the instance's time unit, for objective=energy; default: no "
        "deadline",
    )

    solver: str = Field(
        default=CP_SAT,
        pattern=r"^(cp-sat|scip|highs|pulp(:[A-Za-z_]\w*)?)$",
        description="solver: cp-sat, scip or highs through OR-Tools; pulp (CBC) or pulp:NAME for a solver that PuLP "
        "finds",
    )
    memory: str = Field(
        default="",
        description="second memory, which receives offloaded values; default: the first one with links to and from "
        "the processor's memory",
    )
    start: bool = Field(default=True, description="on larger instances, first search for a schedule with fast rules")
    stages: int = Field(
        default=0,
        ge=0,
        description="maximum number of stages in the program; more are more exact and slower; 0: as many as the size "
        "limit of the program allows",
    )
    work: float | None = Field(
        default=None,
        gt=0,
        description="work limit of cp-sat, in its deterministic units (about 10 s each); with one thread, the result "
        f"does not depend on the clock. Default: no limit with a time limit, otherwise {DEFAULT_WORK:g}",
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A placed schedule, and its note."""

    steps: Steps
    note: str


def solve(problem: Problem, options: PoetOptions, context: Context) -> Proposal:
    """Choose recomputation and paging by integer programming.

    `remat_algorithms.offload.poet.program` states the program. Its stages wait for each other, and each is as long as
    its busiest resource, transfers included (in the published code, paging takes no time). The steps that follow from a
    solution are then placed without that waiting. They end no later than the stages. Of all solutions that CP-SAT
    finds, the one that is fastest when placed is reported; it need not be the best schedule.

    If the program would be too large, stages are merged. For larger programs, the greedy of `dag-auto` and, on machines
    with links, `offload-greedy` and `capuchin` run first. The answer is never worse than theirs.

    With ``objective=energy``, the energy of all runs and transfers is minimised, within the deadline if there is one.
    Small instances are searched exhaustively (`remat_algorithms.offload.poet.energy_search`); a note tells whether the
    energy is proved to be the least. For others, the program minimises the energy, with the deadline for its stages.

    Takes instances of kind `chain`, `adjoint` or `dag`; uses the first processor, its memory and one more. With one
    thread and no time limit, CP-SAT's answer does not depend on the clock. The steps have start times, without a claim;
    infeasible within `SCOPE` if the solver proves it. A note has the stages' makespan.

    Raises
    ------
    OptionError
        If PuLP does not find the solver, the instance has no energies to minimise, a deadline is given for the
        makespan, the memory is unknown or not linked both ways, or a value begins or must end only in another memory
        than the processor's.
    """
    goal = _goal(problem, options)
    pager = _pager(problem, options)
    if goal is not None:
        return _least_energy(problem, options, goal, pager, context)
    search = Search(problem, context, SCOPE, NAME)
    early = search.without_reruns()
    if early is not None:
        return early
    if not search.context.stopped and search.front.start > search.budget:
        return search.infeasible()
    return _Pages(problem, options, pager, search, context).run()


def _goal(problem: Problem, options: PoetOptions) -> EnergyGoal | None:
    """Return the energies to minimise; None for the makespan."""
    if options.objective == "makespan":
        if options.deadline is not None:
            raise OptionError("a deadline is for objective=energy; the makespan is minimised anyway", option="deadline")
        return None
    costs = EnergyCosts.of(problem)
    if costs is None:
        raise OptionError("no task and no link of the instance has an energy", option="objective")
    return EnergyGoal(costs, options.deadline)


def _least_energy(
    problem: Problem, options: PoetOptions, goal: EnergyGoal, pager: Pager | None, context: Context
) -> Proposal:
    """Search small instances exhaustively, and others by the program."""
    if problem.exceeded is not None:
        return Proposal(infeasible_within=ALL_SCHEDULES, least=problem.exceeded)
    alone = ", on the first processor" if len(problem.machine.processors) > 1 else ""
    scope = f"whole-value offloading with recomputation{alone}"
    if goal.deadline is not None:
        scope += f", by {goal.deadline:g}"
    found = least_energy(problem, goal.costs, goal.deadline, lambda: context.stopped)
    if found is not None and found.proved:
        if found.steps is None:
            return Proposal(infeasible_within=scope)
        energy = goal.costs.total(problem, found.steps)
        placed = timed(problem, replace(found.steps, start=None))
        quick = placed is not None and (goal.deadline is None or placed[1] <= goal.deadline)
        steps = placed[0] if placed is not None and quick else found.steps
        return Proposal(steps=steps, notes=(f"energy {energy:.6g}: the least of {scope}",))
    # Its schedules may end after the deadline: they are no answers.
    search = Search(problem, context.aside(), SCOPE, NAME)
    if not context.stopped and search.front.start > search.budget:
        return search.infeasible()
    return _Pages(problem, options, pager, search, context, goal).run()


class _Pages(Incumbent[Found]):
    """The best placed schedule."""

    def __init__(
        self,
        problem: Problem,
        options: PoetOptions,
        pager: Pager | None,
        search: Search,
        context: Context,
        goal: EnergyGoal | None = None,
    ) -> None:
        super().__init__(context, lambda found: found.steps)
        self.goal = goal
        self.problem, self.options, self.pager, self.search = problem, options, pager, search
        self.notes: list[str] = []
        self.energy_rank: tuple[Number, Number] = (math.inf, math.inf)
        unlimited = context.deadline is not None
        self.work = options.work or (None if unlimited else DEFAULT_WORK)
        self.by_default = options.work is None and not unlimited
        if search.best is not None:
            self._take_runs(search.best.runs)

    def run(self) -> Proposal:
        """Find an initial schedule, build the program, and solve it."""
        search, context = self.search, self.context
        if context.stopped:
            return self._propose(proved=False)
        if self.options.start and search.front.slots > SMALL:
            self._start()
        front = search.front
        count = self._groups()
        if count < front.stages:
            front = grouped(front, even_ends(front, count))
            self.notes.append(
                f"the program has {front.stages:,} stages of several tasks each, in place of {search.front.stages:,}"
            )
        form = PoetProgram(front, self.problem.machine, self.pager, search.budget, lambda: context.stopped, self.goal)
        if not form.complete:
            return self._propose(proved=False)
        if min(form.rooms) < 0:
            return search.infeasible()
        outcome = self._by_cp_sat(form) if self.options.solver == CP_SAT else self._by_other(form)
        if outcome is Outcome.INFEASIBLE and form.exact and front is search.front and self.best is None:
            return search.infeasible() if self.goal is None or self.goal.deadline is None else self._too_late()
        return self._propose(proved=outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE))

    def _groups(self) -> int:
        """Return the number of stages of the program."""
        front = self.search.front
        if self.options.stages:
            return min(self.options.stages, front.stages)
        room = MOST_WITHOUT_START if self.search.best_runs is None else MOST_ENTRIES
        few, many = 1, front.stages
        if entries(front) <= room:
            return many
        # Coefficients grow with the square of the stages.
        while few < many:
            middle = (few + many + 1) // 2
            if entries(grouped(front, even_ends(front, middle))) <= room:
                few = middle
            else:
                many = middle - 1
        return few

    # --- starts -------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        greedy_schedule(self.search)
        if self.search.best is not None:
            self._take_runs(self.search.best.runs, "dag-auto's greedy")
        if self.pager is None:
            return
        for entry, given in _rules():
            if self.context.stopped or not entry.accepts(self.problem.kind):
                continue
            proposal = asked(entry, self.problem, self.context, given, share=0.1)
            if proposal is not None and proposal.steps is not None:
                self._take_placed(proposal.steps, f"the schedule is that of {entry.name}")

    def _take_runs(self, runs: Iterable[int], name: str = "") -> None:
        steps = run_in_order(self.problem.graph, self.problem.machine, list(runs))
        self._take_placed(steps, f"the schedule is that of {name}" if name else "")

    def _take_placed(self, steps: Steps, note: str) -> None:
        placed = timed(self.problem, steps)
        if placed is not None and self.goal is not None:
            self._offer_energy(self.goal, *placed, note)
        elif placed is not None:
            self.take(Found(placed[0], note), placed[1], rank=(placed[1], math.inf))

    # --- solvers ------------------------------------------------------------------------------------------------------

    def _by_cp_sat(self, form: PoetProgram) -> Outcome:
        """Solve a small program as a whole, and a large one from an initial schedule, a few values at a time."""
        program = SatProgram(form)
        descent = Descent(program, self.context, self.work, lambda values: self._offer(form, form.choice(values)))
        if form.builder.entries <= MOST_AT_ONCE:
            return descent.whole()
        if self.search.best_runs is not None:
            descent.complete(*form.decided(self.search.front, self.search.best_runs))
        if descent.best is None:
            outcome = descent.whole(share=0.5)
            if outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE):
                return outcome
        descent.descend()
        return Outcome.UNKNOWN

    def _by_other(self, form: PoetProgram) -> Outcome:
        answer = solve_program(form.builder.build(), self.options.solver, self.context)
        if answer.solution is not None:
            self._offer(form, form.choice(answer.solution))
        return answer.outcome

    def _offer(self, form: PoetProgram, choice: Choice) -> None:
        """Place the choice of a solution, and keep it if it is better; ties are broken by shorter stages.

        Solvers that round may return a solution that satisfies the program only up to rounding: it does not count.
        """
        steps, staged = steps_of(self.problem, form.front, self.pager, choice), form.makespan(choice)
        placed = place(self.problem.graph, self.problem.machine, steps)
        if isinstance(placed, Unplaceable):
            if ROUNDED not in self.notes:
                self.notes.append(ROUNDED)
            return
        if self.goal is not None:
            self._offer_energy(self.goal, steps.placed(placed.start), makespan_of(self.problem, steps, placed))
            return
        note = f"makespan of stages that wait for each other: {staged:g}; placed without waiting"
        makespan = makespan_of(self.problem, steps, placed)
        self.take(Found(steps.placed(placed.start), note), makespan, rank=(makespan, staged))

    def _offer_energy(self, goal: EnergyGoal, steps: Steps, makespan: Number, note: str = "") -> None:
        """Keep a placed schedule if it needs less energy than the best one, or as much and less time."""
        energy = goal.costs.total(self.problem, steps)
        rank = (energy, makespan)
        late = goal.deadline is not None and makespan > goal.deadline
        if late or (self.best is not None and rank >= self.energy_rank):
            return
        self.best = Found(steps, f"energy {energy:.6g}, not proved to be the least{note and '; ' + note}")
        self.energy_rank = rank
        self.context.report(steps)

    def _too_late(self) -> Proposal:
        """Return that no schedule of the class ends by the deadline."""
        assert self.goal is not None
        return Proposal(infeasible_within=f"{SCOPE}, by {self.goal.deadline:g}")

    def _propose(self, *, proved: bool) -> Proposal:
        stopped = self.context.termination if self.context.stopped else self.search.limit
        termination = Termination.COMPLETED if proved else stopped
        if termination is Termination.ITERATION_LIMIT and self.by_default:
            self.notes.append(
                f"not finished within {self.work:g} units of work; with a time limit the search continues"
            )
        if self.best is None:
            return Proposal(termination=termination, notes=(*self.notes, UNSOLVED if proved else UNFINISHED))
        notes = (self.best.note, *self.notes) if self.best.note else tuple(self.notes)
        return Proposal(steps=self.best.steps, termination=termination, notes=notes)


def _rules() -> list[tuple[Algorithm, dict[str, Number | bool]]]:
    """Return the fast algorithms for an initial schedule, with their options."""
    from remat_algorithms.offload.catalogue import ALGORITHMS

    given: dict[str, dict[str, Number | bool]] = {"offload-greedy": {"bound": False}, "capuchin": {}}
    return [(entry, given[entry.name]) for entry in ALGORITHMS if entry.name in given]


def _pager(problem: Problem, options: PoetOptions) -> Pager | None:
    """Choose the second memory; None if none exists."""
    machine, graph = problem.machine, problem.graph
    home = machine.processors[0].memory
    names = [memory.name for memory in machine.memories]
    linked = [
        index
        for index in range(len(names))
        if (home, index) in machine.link_index and (index, home) in machine.link_index
    ]
    second = linked[0] if linked else None
    if options.memory:
        second = next((index for index in linked if names[index] == options.memory), None)
        if second is None:
            known = ", ".join(names[index] for index in linked) or "none"
            raise OptionError(
                f"{options.memory!r:.60} is not a memory with links to and from the processor's memory "
                f"{names[home]!r}; such memories: {known}",
                option="memory",
            )
    ends = [(entry.value, machine.memory_index[entry.memory or names[0]]) for entry in (*graph.inputs, *graph.outputs)]
    begin = {(entry.value, machine.memory_index[entry.memory or names[0]]) for entry in graph.inputs}
    for value, memory in ends:
        if memory != home and ((value, memory) not in begin or (value, home) not in begin):
            raise OptionError(
                f"{NAME} begins and ends in memory {names[home]!r}, but {graph.values[value]!r} is in "
                f"{names[memory]!r}",
                argument="algorithm",
            )
    if second is None:
        return None
    sizes = graph.size.tolist()
    out, back = machine.link_index[home, second], machine.link_index[second, home]
    out_time, back_time = (
        [float(transfer_time(graph.link_for(machine.links[link], value), size)) for value, size in enumerate(sizes)]
        for link in (out, back)
    )
    capacity = machine.memories[second].capacity
    lying = frozenset(value for value, memory in begin if memory == second)
    ending = {entry.value for entry in graph.outputs if machine.memory_index[entry.memory or names[0]] == second}
    stays = lying & (ending | graph.pinned)
    taken = graph.static_bytes(machine, second) + sum(sizes[value] for value in stays)
    return Pager(
        home=home,
        memory=second,
        out=out,
        back=back,
        out_time=list(out_time),
        back_time=list(back_time),
        room=None if capacity is None else capacity - taken,
        begin=lying,
        stays=stays,
    )
