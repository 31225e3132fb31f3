"""`tarnawski-latency`: placement of a graph that runs once, for the minimum makespan (after Tarnawski et al. 2020).

In this class, each task runs once, where its parameters are. Each value is copied at most once to each memory, from its
producer or through the hub of a star. The search starts from three kinds of placements: all units on one processor,
greedy placements where each unit ends first, and minimum cuts between two processors (`balanced_cuts`). It then moves
single units and evaluates each placement by list scheduling. A constraint program over all starts (`latency_program`)
continues from the best one.

Solutions are placed with all their bytes. If transient values do not fit, the next round has less memory. The program
counts only the bytes of parameters, so its bound is valid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from pydantic import Field

from remat.placement import Unplaceable, place
from remat.plugin import ALL_SCHEDULES, Bound, Context, Number, Options, Problem, Proposal, Steps, Termination
from remat_algorithms.parallel.placement.balanced_cuts import balanced_cuts, load_bound
from remat_algorithms.parallel.placement.best_pattern import sharpened
from remat_algorithms.parallel.placement.feasibility import pack, refuse
from remat_algorithms.parallel.placement.latency_program import Found, LatencyProgram, Outlook
from remat_algorithms.parallel.placement.single_run import Once, Timed, once_of

ONCE_STRAIGHT = (
    "schedules that run each task once, on one processor, where its parameters lie from the start, and copy values "
    "whole and straight from where they are made or lie"
)

MOST_TASKS = 400
"""Maximum number of tasks for the constraint program."""


class LatencyOptions(Options):
    """Options of `tarnawski-latency`."""

    moves: int = Field(default=2_000, ge=0, le=10**8, description="maximum number of moves of units to evaluate")
    work: float = Field(
        default=20.0, ge=0, le=1e6, description="work limit of the program, in CP-SAT's deterministic units"
    )


def solve(problem: Problem, options: LatencyOptions, context: Context) -> Proposal:
    """Find a placement of minimum makespan."""
    once = once_of(problem, "tarnawski-latency")
    refused = refuse(problem, once.model, context, ONCE_STRAIGHT)
    if refused is not None:
        return refused
    search = _Search(problem, once, context)
    search.begin()
    bounds: list[Bound] = []
    least = load_bound(once)
    if least > float(problem.least_makespan):
        bounds.append(Bound(least, ALL_SCHEDULES, "minimum cuts"))
        context.report(bound=least, scope=ALL_SCHEDULES)
    search.move(options.moves)
    within = None
    ended = False
    possible = len(once.order) <= MOST_TASKS and options.work > 0 and _straight(once)
    if possible and not context.stopped and search.start is not None:
        outlook = search.program(options.work)
        ended = outlook.ended
        if once.model.settled and outlook.bound > 0:
            value = int(outlook.bound) if outlook.bound.denominator == 1 else float(outlook.bound)
            bound = sharpened(Bound(value, ONCE_STRAIGHT, "latency program"), search.makespan)
            # The schedule may be outside the class and faster: a value may travel on from a memory to which it was
            # copied.
            if search.makespan is None or bound.value <= search.makespan:
                bounds.append(bound)
                within = ONCE_STRAIGHT if bound.value == search.makespan else None
    termination = Termination.COMPLETED if ended else Termination.ITERATION_LIMIT
    if search.steps is None:
        return Proposal(bounds=tuple(bounds), termination=termination)
    return Proposal(
        steps=search.steps,
        bounds=tuple(bounds),
        optimal_within=within,
        termination=context.termination if context.stopped else termination,
    )


def _straight(once: Once) -> bool:
    """Whether all routes are direct links, or lead through the hub of a star."""
    model = once.model
    if model.star is not None:
        return True
    homes = set(model.memory_of) | {memory for memories in once.lying.values() for memory in memories}
    targets = set(model.memory_of) | {memory for _, memory in once.wanted}
    return all((one, other) in model.machine.link_index for one in homes for other in targets if one != other)


@dataclass
class _Search:
    """Best steps found, and their placement."""

    problem: Problem
    once: Once
    context: Context
    steps: Steps | None = None
    makespan: Number | None = None
    start: list[int] | None = None
    cost: float = math.inf
    less: list[int] = field(default_factory=list[int])
    step: Fraction = Fraction(1)

    def begin(self) -> None:
        """Evaluate initial placements: one processor, greedy earliest ends, minimum cuts, and packed parameters."""
        model = self.once.model
        self.less = [0] * len(model.machine.memories)
        for processor in range(model.processors):
            if all(math.isfinite(time) for time in model.time[processor].tolist()):
                self._weigh([processor] * model.units)
        for placed in (*self._greedy(), *balanced_cuts(self.once)):
            if self.context.stopped:
                return
            self._weigh(placed)
        if self.start is None:
            packing = pack(model, self.context)
            if packing.homes is not None:
                self._weigh(
                    [
                        min(
                            (p for p in range(model.processors) if model.memory_of[p] == memory),
                            key=lambda p: (model.time[p, unit], p),
                        )
                        for unit, memory in enumerate(packing.homes)
                    ]
                )

    def _greedy(self) -> Iterator[list[int]]:
        """Yield placements that assign each unit, in sequence, to the processor where it ends first (HEFT)."""
        model = self.once.model
        units = list(dict.fromkeys(model.unit_of[task] for task in self.once.order))
        ranked = sorted(units, key=lambda unit: -max(self.once.rank[task] for task in model.tasks[unit]))
        for order in (units, ranked):
            held = [0] * len(model.machine.memories)
            ends = [0.0] * model.processors
            placed = [-1] * model.units
            for unit in order:
                able = [
                    p
                    for p in range(model.processors)
                    if math.isfinite(model.time[p, unit]) and self._has_room(model.memory_of[p], held, unit)
                ]
                if not able:
                    break
                best = min(able, key=lambda p: (self._ready(unit, p, placed, ends) + model.time[p, unit], p))
                ends[best] = self._ready(unit, best, placed, ends) + float(model.time[best, unit])
                placed[unit] = best
                held[model.memory_of[best]] += model.size[unit]
            else:
                yield placed

    def _has_room(self, memory: int, held: Sequence[int], unit: int) -> bool:
        room = self.once.model.room[memory]
        return room is None or held[memory] + self.once.model.size[unit] <= room - self.less[memory]

    def _ready(self, unit: int, processor: int, placed: Sequence[int], ends: Sequence[float]) -> float:
        """Return the estimated earliest start of a unit on a processor."""
        model = self.once.model
        when = ends[processor]
        for flow in model.flows:
            home = placed[flow.maker]
            if unit in flow.readers and home >= 0 and model.memory_of[home] != model.memory_of[processor]:
                links = model.route(model.memory_of[home], model.memory_of[processor], flow.value)
                if links is None:
                    return math.inf
                when = max(when, ends[home] + sum(float(model.arrival_time(link, flow.value)) for link in links))
        return when

    def _weigh(self, placed: list[int]) -> bool:
        """Time a placement; keep it if it is better and fits."""
        model = self.once.model
        if model.excess(placed, self.less):
            return False
        timed = self.once.timed(placed)
        if timed is None or float(timed.makespan) >= self.cost:
            return False
        if not self._place(placed, timed):
            return False
        self.start, self.cost = list(placed), float(timed.makespan)
        return True

    def _place(self, placed: Sequence[int], timed: Timed) -> bool:
        """Place steps with all their bytes; keep them if they are the best."""
        for by_list in (False, True):
            listing = self.once.steps(placed, timed, by_list=by_list)
            outcome = place(self.problem.graph, self.problem.machine, listing.steps)
            if isinstance(outcome, Unplaceable):
                continue
            ends = listing.ends(outcome.start.tolist())
            if ends is None:  # the times have changed, and some value would be dropped too early
                continue
            makespan: Number = max(ends, default=0)
            if self.makespan is None or makespan < self.makespan:
                self.steps, self.makespan = listing.steps, makespan
                self.context.report(listing.steps, makespan=makespan)
            return True
        return False

    def move(self, moves: int) -> None:
        """Move single units or pairs for a shorter makespan, occasionally accepting a slightly longer one."""
        model, chance = self.once.model, Random(self.context.seed)
        if self.start is None or model.processors < 2 or not model.units:
            return
        now, cost = list(self.start), self.cost
        for number in range(moves):
            if self.context.stopped:
                return
            unit = chance.randrange(model.units)
            target = chance.randrange(model.processors)
            trial = list(now)
            trial[unit] = target
            if chance.random() < 0.3:
                other = chance.randrange(model.units)
                trial[other] = now[unit] if chance.random() < 0.5 else target
            able = all(math.isfinite(model.time[p, u]) for u, p in enumerate(trial) if p != now[u])
            if trial == now or not able or model.excess(trial, self.less):
                continue
            timed = self.once.timed(trial)
            if timed is None:
                continue
            length = float(timed.makespan)
            heat = 0.02 * self.cost * (1 - number / moves)
            if length <= cost or (heat > 0 and chance.random() < math.exp((cost - length) / heat)):
                now, cost = trial, length
                if length < self.cost:
                    self._weigh(trial)

    def program(self, work: float) -> Outlook:
        """Continue with the constraint program; return its result."""
        assert self.start is not None
        program = LatencyProgram(self.once, self.cost)
        self.step = program.steps.step
        settled = self.once.model.settled

        def bounded(bound: float) -> None:
            if settled:
                self.context.report(bound=bound, scope=ONCE_STRAIGHT)

        return program.solve(
            hint=self.start,
            found=self._found,
            bounded=bounded,
            stop=lambda: self.context.stopped,
            work=work,
            seed=self.context.seed,
        )

    def _found(self, found: Found) -> None:
        """Place a solution of the program: its runs and copies in the order of its starts."""
        timed = self.once.timed(found.placed)
        if timed is None:
            return
        self._place(found.placed, self._as_found(timed, found))
        self._place(found.placed, timed)

    def _as_found(self, timed: Timed, found: Found) -> Timed:
        """Return the runs and copies of a placement at a solution's starts; missing copies keep their list schedule."""
        start: list[Number] = []
        step = float(self.step)
        for job, begin in zip(timed.jobs, timed.start, strict=True):
            known = found.runs.get(job.item) if job.on >= 0 else found.copies.get((job.item, job.source, job.target))
            start.append(begin if known is None else known * step)
        return Timed(timed.jobs, start, timed.makespan)
