"""The bounding side of `dag-auto`: bounds for all orders, then the gap cover and the block bound for one order.

The solutions of one order's programs seed the improving side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from remat.plugin import Problem
from remat_algorithms.dag.anytime.bounds.block_bound import Blocks, Facts, Pairs, facts_of, placed
from remat_algorithms.dag.anytime.bounds.gap_cover_bound import GapCover, gap_cover, lives_of
from remat_algorithms.dag.anytime.shared_incumbent import Race
from remat_algorithms.dag.moments.before_first_run import Free
from remat_algorithms.dag.moments.formulation_terms import build
from remat_algorithms.dag.moments.integer_facts import Facts as MomentFacts
from remat_algorithms.dag.moments.precedence import MOST_TASKS, Lineage
from remat_algorithms.dag.moments.program_solution import Effort, Moment
from remat_algorithms.dag.moments.program_solution import solve as solve_moments
from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.dag.plans.search_state import ALPHAS, Plan, Search
from remat_algorithms.kit.programs.cp_sat import solve
from remat_algorithms.kit.programs.program import ProgramBuilder
from remat_algorithms.kit.programs.solver_status import Answer

FIRST_POINTS = 5
"""Stages of the first block program."""

MORE, MORE_ROWS = 5, 20
"""Maximum number of points, and of violated runs that get rows, added in each round."""

FEW_MOMENTS = 16
"""Number of moments in the first programs for all orders."""

MOMENTS_WORK, MOMENTS_WORK_EACH, MOMENTS_SHARE = 1.0, 0.0005, 0.3
"""Work limit per program of moments in CP-SAT's units, its increase per stage, and the maximum share of the remaining
time for all of them.
"""

IDLE = 2
"""Number of successive programs without an improved bound after which the solve tries something else."""

MOMENT_ENTRIES = 4
"""Approximate number of coefficients per access in the program of one moment."""

MORE_MOMENTS = 1.5
"""Growth factor of the number of moments from program to program."""

LARGE_COVER, COVER_WORK = 2000, 1.0
"""A gap cover with more variables gets this work limit, since it promises less than blocks do."""

MOST_ENTRIES = 2_000_000
"""Maximum number of coefficients of a program."""


@dataclass
class Bounding:
    """Bounds of one race.

    Attributes
    ----------
    race : Race
    search : Search
        Separate from the one of the improving side.
    effort : float or None
        Work limit per program in the solver's units, for answers that do not depend on the clock.
    seed : callable
        Receives plans that may be worth improving, whether or not they fit into the budget.
    """

    race: Race
    search: Search
    effort: float | None
    seed: Callable[[Plan], None]
    points: list[int] = field(default_factory=list)
    transients: Pairs = field(default_factory=list)
    exhausted: bool = False
    _lineage: Lineage | None = None
    _chain: Sequence[int] | None = None
    _moments: Sequence[int] = ()
    _known: float = 0.0

    @cached_property
    def _facts(self) -> Facts:
        return facts_of(self.race.model, lives_of(self.race.model))

    def _solve(
        self, program: ProgramBuilder, seconds: float | None, hint: Sequence[int] = (), work: float | None = None
    ) -> Answer:
        race, left = self.race, self.race.context.seconds_left
        if left is not None:
            seconds = left if seconds is None else min(left, seconds)
        answer = solve(
            program,
            seconds=seconds,
            stopped=race.watch,
            step=race.model.time_step,
            hint=hint,
            work=self.effort if work is None else work,
            seed=race.context.seed,
            # Intermediate bounds arrive at varying times: with counted work, only the last one counts.
            raised=race.raise_bound if self.effort is None else None,
        )
        race.raise_bound(answer.bound)
        return answer

    @property
    def may_widen(self) -> bool:
        """Whether programs with more moments may improve the bound for all orders."""
        if self._chain is None:
            self._chain = ()
            accesses = len(self.race.model.tables.read_value) + len(self.race.model.tables.write_value)
            small = MOMENT_ENTRIES * accesses <= MOST_ENTRIES
            if small and speaks_for_all(self.race.problem, self.race.model):
                self._lineage = Lineage.of(MomentFacts.of(self.race.problem))
                self._chain = self._lineage.chain()
        return len(self._moments) < len(self._chain)

    def widen(self, seconds: float | None, work: float | None = None) -> bool:
        """Solve a program for all orders with more moments than the last one, within limits of time and work.

        Returns
        -------
        bool
            Whether it was solved completely; otherwise it deserves more time.
        """
        race = self.race
        if not self.may_widen:
            return True
        assert self._lineage is not None
        assert self._chain is not None
        moments, count = self._moments, len(self._moments)
        while moments == self._moments:
            count = max(count + 1, int(count * MORE_MOMENTS))
            moments = self._lineage.choose(self._chain, count)
        facts = self._lineage.facts
        built = build(Free(facts), race.budget, moments, None, race.watch)
        if built is None:
            return False
        left, unit = race.context.seconds_left, float(facts.unit) / race.model.time_unit
        effort = Effort(
            relaxed_work=0,
            whole_work=self.effort if work is None else work,
            seconds=left if seconds is None or left is None else min(left, seconds),
            # Each program contains the moments of the last one.
            known=self._known,
            seed=race.context.seed,
        )
        raised = (lambda units: race.raise_overall(unit * units)) if self.effort is None else None
        answer = solve_moments(built, effort, stopped=race.watch, raised=raised)
        self._known = answer.bound
        race.raise_overall(unit * answer.bound)
        race.say(f"all orders, at {len(moments)} moments")
        if answer.whole and not race.over():
            self._try(self._placed(moments, answer.whole))
        if answer.ended:
            self._moments = moments
            if MORE_MOMENTS * built.program.entries > MOST_ENTRIES:
                self._chain = moments
        return answer.ended

    def _placed(self, moments: Sequence[int], found: Sequence[Moment]) -> Pairs:
        """Assign the reruns of a solution to stages of this order; they may not fit if the solution has another one."""
        model = self.race.model
        item = {task: number for number, task in enumerate(model.task)}
        at = [item[task] for task in moments]
        reruns = [{item[task]: round(share) for task, share in moment.rerun.items()} for moment in found]
        return placed(self._facts, reruns, list(zip(at, [*at[1:], model.stages], strict=True)))

    def widen_first(self, most: int = FEW_MOMENTS) -> bool:
        """Bound all orders quickly, by programs of at most `most` moments; False if a limit cuts one short."""
        left, work = self.race.context.seconds_left, self.effort
        end = math.inf if left is None else time.monotonic() + MOMENTS_SHARE * left
        if work is None:
            work = MOMENTS_WORK + MOMENTS_WORK_EACH * self.race.model.stages
        idle = 0
        while idle < IDLE and len(self._moments) < most and self.may_widen and not self.race.over():
            known, left = self.race.overall, end - time.monotonic()
            if left <= 0 or not self.widen(None if left == math.inf else left, work):
                return False
            idle = 0 if self.race.overall > known else idle + 1
        return True

    def widen_all(self) -> None:
        """Improve the bound for all orders until no larger program remains."""
        while self.may_widen and not self.race.over():
            if not self.widen(None) and self.effort is not None:
                return

    def cover(self, seconds: float | None) -> None:
        """Solve the gap cover, unless it is huge, and try its solution as a plan."""
        cover = gap_cover(self.race.model, self.race.budget, MOST_ENTRIES)
        if cover is None:
            return
        work = COVER_WORK if len(cover.program.cost) > LARGE_COVER and self.effort is None else None
        self._realise(cover, self._solve(cover.program, seconds, work=work))

    def _realise(self, cover: GapCover, answer: Answer) -> None:
        """Try the gaps that a solution of the gap cover chooses as a plan."""
        race = self.race
        race.say("gap cover")
        values = answer.values
        if not values or race.over():
            return
        maker = race.model.tables.maker
        pairs = {(end, maker[value]) for value, _, end, number in cover.gaps if values[number]}
        self._try(sorted(pairs))

    def _try(self, pairs: Pairs) -> list[tuple[int, int, int]]:
        """Repair a set of reruns into a plan; return (excess bytes, stage, item) of the runs that did not fit."""
        race, first = self.race, self.race.model.tables.first
        runs = sorted({*pairs, *enumerate(first)})
        stage, item = [at for at, _ in runs], [task for _, task in runs]
        if len(runs) > len(self.search.room.item[0]) - 2:
            return []
        memory = self.search.memory(item, stage)
        raw = self.search.measure(item, stage)
        for alpha in ALPHAS if raw.peak > race.budget else ALPHAS[:1]:
            plan = self.search.construct(alpha, start=raw)
            if plan is not None:
                race.offer(plan)
                self.seed(plan)
        found = [
            (level - race.budget, at, task)
            for level, at, task in zip(memory, stage, item, strict=True)
            if level > race.budget
        ]
        return sorted(found, reverse=True)

    def refine(self, seconds: float | None) -> bool:
        """Solve one block program; add the points and rows that its solution violates.

        Returns
        -------
        bool
            Whether the program was solved completely; otherwise it deserves more time.
        """
        race = self.race
        if not self.points:
            self.points = self._first_points(self._facts.lives.memory)
        blocks = Blocks.build(self._facts, race.budget, self.points, self.transients)
        if blocks.program.entries > MOST_ENTRIES:
            self.exhausted = True
            return True
        best = race.best
        hint = blocks.hint(best.item, best.stage) if best is not None else ()
        answer = self._solve(blocks.program, seconds, hint)
        race.say(f"{len(self.points)} of {race.model.stages} stages")
        if race.over():
            return True
        values = answer.values
        reruns = blocks.reruns(values) if values else []
        violated = self._try(reruns) if values else []
        if not answer.ended:
            return False
        if answer.bound < math.inf and not self._extend(reruns, violated):
            self.exhausted = True
        return True

    def _first_points(self, memory: Sequence[int]) -> list[int]:
        """Return stages of high memory that are not adjacent to each other."""
        over = [stage for stage, level in enumerate(memory) if level > self.race.budget]
        points: list[int] = []
        for stage in sorted(over, key=lambda stage: (-memory[stage], stage)):
            if len(points) < FIRST_POINTS and all(abs(stage - point) > 2 for point in points):
                points.append(stage)
        return points or [max(range(len(memory)), key=lambda stage: memory[stage])]

    def _extend(self, reruns: Pairs, violated: list[tuple[int, int, int]]) -> bool:
        """Add points and rows for the violated runs; return whether anything was added."""
        first = self.race.model.tables.first
        stages = [at for _, at, task in violated if at < len(first) and first[at] == task and at not in self.points]
        if stages:
            self.points += stages[:MORE]
            return True
        added = False
        for _, at, task in violated[:MORE_ROWS]:
            if at < len(first) and first[at] == task:
                continue
            # Add all reruns of the stage: otherwise the next solution only shifts the excess to another one.
            for pair in ((at, task), *(pair for pair in reruns if pair[0] == at)):
                if pair not in self.transients:
                    self.transients.append(pair)
                    added = True
            for point in (at - 1, at):
                if 0 <= point < len(first) and point not in self.points:
                    self.points.append(point)
                    added = True
        return added

    def work(self) -> None:
        """Refine until the race is over or no extension remains."""
        while not self.race.over() and not self.exhausted:
            if not self.refine(None) and self.effort is not None:
                return


def speaks_for_all(problem: Problem, model: StageModel) -> bool:
    """Whether a bound over all orders of a model's tasks, with reruns, holds for every schedule of the problem.

    It holds with one processor, one memory, and no alternative producers.
    """
    machine, graph = problem.machine, problem.graph
    if not model.simple or model.stages > MOST_TASKS or len(machine.processors) > 1 or len(machine.memories) > 1:
        return False
    origins = [len(set(tasks)) for tasks in graph.producers.to_lists()]
    for place in graph.inputs:
        origins[place.value] += 1
    return max(origins, default=0) <= 1 and bool(problem.needed.forced[model.task].all())
