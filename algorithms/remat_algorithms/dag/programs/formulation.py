"""The integer program of Checkmate (Jain et al. 2020) over frontier-advancing schedules."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from remat_algorithms.dag.programs.frontier import Frontier
from remat_algorithms.dag.programs.stage_program import Formulation, Instant, Use
from remat_algorithms.kit.programs.program import INFINITY, ProgramBuilder

FINEST = 2**22
"""Maximum ratio of the budget to the greatest common divisor of sizes for which sizes are exact in the program."""

DEAREST = 2**30
"""The same for times: the maximum cost of all runs together, in units."""

MOST_ENTRIES = 6_000_000
"""Maximum number of entries of the memory rows; beyond, building the program alone takes minutes."""

MOST_RUNS = 1_000_000
"""Maximum number of (task, stage) pairs; each takes some hundred bytes, and microseconds."""


class TooLarge(Exception):
    """The program would exceed `MOST_ENTRIES` or `MOST_RUNS`, or the time ended during its construction."""


def formulate(
    front: Frontier,
    budget: int,
    *,
    most_cost: float = INFINITY,
    integral: bool = True,
    stopped: Callable[[], bool] = lambda: False,
) -> Formulation:
    """Build the program for a budget.

    Parameters
    ----------
    front : Frontier
    budget : int
        Capacity, in bytes.
    most_cost : float
        Leave out reruns that alone take longer: the time of a known schedule beyond the forced runs.
    integral : bool
        Whether runs are integer columns (else continuous, for the relaxation).
    stopped : callable
        Checked continually: a large program takes seconds.

    Raises
    ------
    TooLarge

    Notes
    -----
    R[t, i] = 1 if the task at position i runs in stage t. A value's life is a chain of segments between the runs that
    may read or write it, in the order of all stages. The segment x before each of these runs and y after it obey

        run reads the value:    x >= R,  x >= y            (freed after this use if y = 0),
        run writes the value:   y <= x + R,  x + R <= 1    (an old copy is dropped before it is rewritten),
        run does both:          x >= R,  x >= y.

    At every instant the budget bounds a sum: the segments' bytes, plus R times the bytes that the run writes and its
    workspace (which no recurrence contains). This is Checkmate's program, with S[t, v] the segment at the border of two
    stages and the freeing F = x - y <= R disaggregated by use. The relaxation is the same, with one column for all
    borders between which a value cannot be used. Given integer R, the minimum feasible segments are integers, so only R
    is declared integer.

    A run in place adds a >= 0, a >= writes R - sum M (x - y) over its inputs, instead of its writes.

    Sizes and times are divided by their greatest common divisors. If they are still too fine for floating-point solvers
    (`FINEST`, `DEAREST`), they are rounded *down*. The program is then a relaxation. Its solutions are replayed with
    the true sizes, and cut off if they do not fit.
    """
    return _Construction(front, budget, most_cost, integral, stopped).build()


class _Construction:
    def __init__(
        self, front: Frontier, budget: int, most_cost: float, integral: bool, stopped: Callable[[], bool]
    ) -> None:
        self.front, self.most_cost, self.integral, self.stopped = front, most_cost, integral, stopped
        self.room = budget - front.fixed
        self.builder = ProgramBuilder()
        self.runs: dict[tuple[int, int], int] = {}
        self.memory_unit = _memory_unit(front, self.room)
        self.time_unit, self.exact_time = time_unit(front)

    def build(self) -> Formulation:
        self._add_runs()
        self.uses: dict[tuple[int, int, int], Use] = {}
        self.chains: list[list[Use]] = []
        self.stays: list[bool] = []
        self.borders: list[dict[int, int]] = []
        starts: dict[int, int | None] = {}
        for value in range(len(self.front.size)):
            self._look_at_the_clock()
            if self.front.makers[value] or self.front.users[value] or value in self.front.outputs:
                starts[value] = self._add_chain(value)
        instants = self._add_memory(starts)
        return Formulation(
            self.builder,
            self.runs,
            self.chains,
            self.stays,
            self.borders,
            instants,
            self.memory_unit,
            self.time_unit,
            self.exact_time,
        )

    def _look_at_the_clock(self) -> None:
        if self.stopped():
            raise TooLarge(f"the time was over while the program ({len(self.runs):,} runs) was built")

    def _add_runs(self) -> None:
        front = self.front
        again = [not (front.forced[position] and front.single[position]) for position in range(len(front.tasks))]
        until = [
            min(front.last[position], front.unread_until[position])
            if self._too_dear(position)
            else front.last[position]
            for position in range(len(front.tasks))
        ]
        windows = zip(again, front.first, until, strict=True)
        count = front.stages + sum(max(0, last - first + 1) for repeated, first, last in windows if repeated)
        if count > MOST_RUNS:
            raise TooLarge(
                f"the program ({front.stages:,} stages) would have {count:,} runs, more than {MOST_RUNS:,}: "
                f"too many to be built in reasonable time"
            )
        for stage in range(front.stages):
            self._look_at_the_clock()
            for position in range(front.end[stage] + 1):
                if not front.may_run(stage, position):
                    continue
                own = front.forced[position] and front.first[position] == stage
                if not own and not (again[position] and stage <= until[position]):
                    continue
                cost = 0.0 if own else float(_units(front.rerun_cost(stage, position), self.time_unit))
                self.runs[stage, position] = self.builder.add_column(
                    cost=cost, lower=1 if own else 0, integer=self.integral and not own
                )
        for position, single in enumerate(front.single):
            if single and not front.forced[position]:
                entries = [
                    (self.runs[stage, position], 1.0) for stage in range(front.stages) if (stage, position) in self.runs
                ]
                if len(entries) > 1:
                    self.builder.add_row(entries, upper=1)

    def _too_dear(self, position: int) -> bool:
        return self.front.again[position] > self.most_cost

    def _add_chain(self, value: int) -> int | None:
        """Add the segments of a value's life; return the first one."""
        front, add_row = self.front, self.builder.add_row
        makers, users = set(front.makers[value]), set(front.users[value])
        touching = sorted(makers | users)
        events = [
            (stage, position)
            for stage in range(front.stages)
            for position in touching
            if position <= front.end[stage] and (stage, position) in self.runs
        ]
        reads_left = sum(position in users for _, position in events)
        stays = value in front.outputs
        current = self.builder.add_column() if value in front.inputs else None
        start = current
        chain: list[Use] = []
        for index, (stage, position) in enumerate(events):
            run = self.runs[stage, position]
            reading, making = position in users, position in makers
            reads_left -= reading
            before = current
            after: int | None = None
            if (reads_left or stays) and (before is not None or making):
                last = index == len(events) - 1
                after = self.builder.add_column(lower=1 if last and stays else 0)
            if reading:
                if before is None:
                    self.builder.upper[run] = 0  # infeasible if the run is forced
                else:
                    add_row([(before, 1), (run, -1)], lower=0)
                    if after is not None:
                        add_row([(before, 1), (after, -1)], lower=0)
            elif before is None:
                if after is not None:
                    add_row([(run, 1), (after, -1)], lower=0)
            else:
                add_row([(before, 1), (run, 1)], upper=1)
                if after is not None:
                    add_row([(before, 1), (run, 1), (after, -1)], lower=0)
            use = Use(run, reading, making, before, after)
            self.uses[stage, position, value] = use
            chain.append(use)
            current = after
        self.chains.append(chain)
        self.stays.append(stays)
        if stays and not events:
            if start is None:
                add_row([], lower=1)  # no task can make it
            else:
                self.builder.lower[start] = 1
        elif stays and current is None:
            add_row([], lower=1)
        return start

    def _add_memory(self, starts: dict[int, int | None]) -> list[Instant]:
        front, size = self.front, self.front.size
        live = {value: column for value, column in starts.items() if column is not None}
        total = sum(size[value] for value in live)
        instants: list[Instant] = []
        entries = 0
        for (stage, position), run in sorted(self.runs.items()):
            self._look_at_the_clock()
            while len(self.borders) <= stage:
                self.borders.append(dict(live))
            touched = dict.fromkeys((*front.reads[position], *front.writes[position]))
            added = front.written[position] + front.workspace[position]
            if total + added > self.room and self.builder.upper[run] > 0:
                instant = self._instant(stage, position, run, live)
                instants.append(instant)
                self._add_memory_row(instant)
                entries += len(live)
                if entries > MOST_ENTRIES:
                    raise TooLarge(
                        f"the program ({front.stages:,} stages, {len(self.runs):,} runs) would have more than "
                        f"{MOST_ENTRIES:,} entries: too many to be built in reasonable time"
                    )
            for value in touched:
                key = stage, position, value
                if key not in self.uses:
                    continue
                after = self.uses[key].after
                if value in live:
                    total -= size[value]
                    del live[value]
                if after is not None:
                    live[value] = after
                    total += size[value]
        while len(self.borders) < front.stages:
            self.borders.append(dict(live))
        return instants

    def _instant(self, stage: int, position: int, run: int, live: dict[int, int]) -> Instant:
        front = self.front
        reused = []
        if front.in_place[position]:
            for value in front.reads[position]:
                use = self.uses.get((stage, position, value))
                if use is not None and use.before is not None and not use.making and front.size[value]:
                    reused.append((use.before, use.after, front.size[value]))
        held = tuple((column, front.size[value]) for value, column in live.items() if front.size[value])
        own = self.builder.add_column(upper=INFINITY) if reused else None
        return Instant(run, held, front.written[position], front.workspace[position], own, tuple(reused))

    def _add_memory_row(self, instant: Instant) -> None:
        unit = self.memory_unit
        entries = [(column, float(size // unit)) for column, size in instant.held if size >= unit]
        own = instant.own
        if own is not None:
            # A lower bound on the bytes added: outputs minus the bytes that they take over.
            row = [(own, 1.0), (instant.run, -float(instant.added // unit))]
            for before, after, size in instant.reused:
                row.append((before, float(-(-size // unit))))
                if after is not None:
                    row.append((after, -float(-(-size // unit))))
            self.builder.add_row(row, lower=0)
            entries += [(own, 1.0), (instant.run, float(instant.workspace // unit))]
        else:
            entries.append((instant.run, float((instant.added + instant.workspace) // unit)))
        self.builder.add_row(entries, upper=float(self.room // unit))


def _memory_unit(front: Frontier, room: int) -> int:
    """Return the unit of sizes: their greatest common divisor, or more if that is too fine."""
    unit = 0
    for size in (*front.size, *front.written, *front.workspace):
        unit = gcd(unit, size)
    unit = max(1, unit)
    return unit if room <= unit * FINEST else max(unit, room // FINEST)


def time_unit(front: Frontier) -> tuple[int | float, bool]:
    """Return the unit of times, and whether all of them are multiples of it."""
    if all(isinstance(time, int) for time in front.time):
        unit = 0
        for time in front.time:
            unit = gcd(unit, int(time))
        unit = max(1, unit)
        total = int(sum(front.time))
        return (unit, True) if total <= unit * DEAREST else (max(unit, total // DEAREST), False)
    largest = max(front.time, default=0)
    return (largest / 1024 if largest else 1.0), True


def _units(time: int | float, unit: int | float) -> int | float:
    return time // unit if isinstance(time, int) and isinstance(unit, int) else time / unit
