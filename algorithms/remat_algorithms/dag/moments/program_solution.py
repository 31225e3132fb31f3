"""Solution of a moment program: a relaxation with an exact bound, and CP-SAT for integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from remat_algorithms.dag.moments.formulation import LONGEST, NO, YES, MomentProgram
from remat_algorithms.dag.moments.one_moment import is_read_behind, sweep
from remat_algorithms.kit.programs.cp_sat import solve as solve_whole
from remat_algorithms.kit.programs.program import ProgramBuilder
from remat_algorithms.kit.programs.relaxation import relaxed

SHARES, TICK_BITS, ROW_BITS = 1 << 12, 30, 56
"""Parts into which CP-SAT divides values; maximum bits of a time in its ticks, and of the terms of a row."""

RELAXED_WORK, WHOLE_WORK = 5.0, 1.0
"""Default work limits of the relaxation and of the integer program, in the units of GLOP and of CP-SAT."""


@dataclass(frozen=True)
class Moment:
    """A solution at one moment.

    Attributes
    ----------
    kept : dict of int to float
        S, or K for values that the moment's run reads in place: the share of each value that is resident after the run.
    away : dict of int to dict of int to float
        H: its shares in other memories.
    again : dict of int to float
        Z: whether each task runs after the moment, for tasks that have run before it and for optional ones.
    rerun : dict of int to float
        X: the same for the stretch up to the next moment.
    """

    kept: dict[int, float]
    away: dict[int, dict[int, float]]
    again: dict[int, float]
    rerun: dict[int, float]


@dataclass(frozen=True)
class MomentAnswer:
    """Result of a program.

    Attributes
    ----------
    bound : int or float
        Lower bound on the time that every schedule of the class takes beyond the forced tasks, in units; infinite if no
        schedule exists.
    ended : bool
        Whether no limit cut the solution short.
    whole : list of Moment
        The solution of the integer program; empty without one.
    relaxed : list of Moment
        The solution of the relaxation; empty without one.
    price : float
        Units of time per byte at the first moment, in the relaxation.
    """

    bound: float
    ended: bool
    whole: list[Moment]
    relaxed: list[Moment]
    price: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Limits and tolerances for solving a program.

    Attributes
    ----------
    relaxed_work : float
        Work limit of the relaxation, in GLOP's units; 0: skip it.
    sweeps : bool
        Whether to sweep one moment in one memory where possible (see `sweep`).
    price : float
        Known units of time per byte at the first moment; if positive, the relaxation is not solved again.
    whole_work : float or None
        Work limit of the integer program, in CP-SAT's units; 0: skip it; None: no limit.
    seconds : float or None
        Time limit of the integer program.
    near : int
        Sufficient distance of a solution from the bound, in units of time, for the sweep.
    known : float
        A known bound from a part of the program.
    seed : int
    """

    relaxed_work: float = RELAXED_WORK
    sweeps: bool = True
    price: float = 0.0
    whole_work: float | None = WHOLE_WORK
    seconds: float | None = None
    near: int = 0
    known: float = 0.0
    seed: int = 0


def solve(
    built: MomentProgram,
    effort: Effort,
    *,
    stopped: Callable[[], bool],
    raised: Callable[[float], None] | None = None,
) -> MomentAnswer:
    """Solve a program, within limits of work.

    Parameters
    ----------
    built : MomentProgram
    effort : Effort
    stopped : callable
        Checked every `POLL_SECONDS`.
    raised : callable, optional
        Receives improved bounds.
    """
    program, limit = built.program, LONGEST // 2 * max(1, sum(built.facts.length))
    bound, sketch = effort.known, list[Moment]()

    def told(value: float) -> None:
        if raised is not None:
            raised(min(value, limit))

    price = effort.price
    if effort.relaxed_work > 0 and not price > 0.0:
        answer = relaxed(program, stopped=stopped, work=effort.relaxed_work)
        if answer.infeasible:
            return _without_solution(built, limit, stopped)
        bound = max(bound, float(answer.bound))
        sketch = moments_of(built, answer.values)
        told(bound)
        if len(answer.prices) and built.room[0] >= 0:
            price = answer.prices[built.room[0]]
    if effort.sweeps and price > 0.0 and not stopped():
        swept = sweep(built, price, stopped=stopped, near=effort.near)
        if swept is not None and swept.again is not None:
            bound = max(bound, swept.bound)
            told(bound)
            if swept.cost - effort.near <= bound:
                whole = [moment_of(built, swept.again)]
                return MomentAnswer(min(bound, limit), swept.cost <= bound, whole, sketch, price)
    if effort.whole_work == 0 or stopped():
        return MomentAnswer(min(bound, limit), False, [], sketch, price)
    scaled, lost = in_shares(program)
    found = solve_whole(
        scaled,
        seconds=effort.seconds,
        stopped=stopped,
        step=1,
        work=effort.whole_work,
        seed=effort.seed,
        known=bound,
        raised=lambda value: told(value - lost),
    )
    if found.bound == math.inf:
        return _without_solution(built, limit, stopped)
    bound, whole = max(bound, found.bound - lost), list[Moment]()
    if found.values:
        columns = zip(found.values, program.integer, strict=True)
        whole = moments_of(built, [value if integer else value / SHARES for value, integer in columns])
    return MomentAnswer(min(bound, limit), found.ended, whole, sketch, price)


def moment_of(built: MomentProgram, chosen: set[int]) -> Moment:
    """Return the solution at a single moment, given the tasks that rerun."""
    facts, at = built.facts, built.moments[0]
    wanted = {value for task in chosen for value in facts.reads[task]}
    made = {value for task in chosen for value in facts.writes[task]}

    def share(value: int, state: int) -> float:
        needed = value in wanted or facts.stays[value] or is_read_behind(facts, value, at)
        return float(state == YES or (needed and value not in made))

    states = built.resident[0] | dict.fromkeys(built.spared[0], NO)
    kept = {value: share(value, state) for value, state in states.items()}
    again = {task: float(task in chosen) for task in built.again[0]}
    return Moment(kept, {}, again, again)


def _without_solution(built: MomentProgram, limit: int, stopped: Callable[[], bool]) -> MomentAnswer:
    """Return the result for a program without solution: no schedule exists, or none within the limit on idle time."""
    if built.behind is not None:
        still = in_shares(built.still())[0]
        if solve_whole(still, seconds=None, stopped=stopped, step=1, work=WHOLE_WORK).bound < math.inf:
            return MomentAnswer(limit, False, [], [])
    return MomentAnswer(math.inf, True, [], [])


def moments_of(built: MomentProgram, values: Sequence[float]) -> list[Moment]:
    """Convert a solution to moments; an empty one has none."""
    if not len(values):
        return []
    found = []
    for moment, resident in enumerate(built.resident):
        kept = {value: 1.0 if state == YES else values[state] for value, state in resident.items()}
        kept |= {value: values[column] for value, column in built.spared[moment].items()}
        away = {
            value: {memory: values[column] for memory, column in places.items()}
            for value, places in built.away[moment].items()
        }
        again = {task: values[column] for task, column in built.again[moment].items()}
        rerun = {task: values[column] for task, column in built.rerun[moment].items()}
        found.append(Moment(kept, away, again, rerun))
    return found


def in_shares(program: ProgramBuilder) -> tuple[ProgramBuilder, int]:
    """Return a program with integer columns, and the maximum excess of its costs over those of `program`.

    Shares become numbers of parts, and times become numbers of ticks, both rounded up. The rows are relaxed by the
    effect of the rounding, so every solution of `program` remains one.
    """
    if all(program.integer):
        return program, 0
    longest = max(int(upper) for upper in program.upper)
    kinds = [_Kind.of(whole, int(upper)) for whole, upper in zip(program.integer, program.upper, strict=True)]
    tick = max(1, longest >> TICK_BITS)
    scaled = ProgramBuilder()
    for cost, upper, kind in zip(program.cost, program.upper, kinds, strict=True):
        if kind is _Kind.SHARE:
            scaled.add_column(cost=SHARES * cost, upper=SHARES, integer=True)
        elif kind is _Kind.TIME:
            scaled.add_column(cost=tick * cost, upper=-(-int(upper) // tick), integer=True)
        else:
            scaled.add_column(cost=cost, upper=upper, integer=True)
    scale = {_Kind.WHOLE: SHARES, _Kind.SHARE: 1, _Kind.TIME: SHARES * tick}
    for (first, last), least in zip(pairwise(program.row_start), program.row_lower, strict=True):
        columns = program.column[first:last]
        factors = [int(factor) for factor in program.coefficient[first:last]]
        if all(program.integer[column] for column in columns):
            scaled.add_row(zip(columns, factors, strict=True), lower=least)
            continue
        given = _given([kinds[column] for column in columns], factors, tick)
        terms = [(column, factor * scale[kinds[column]]) for column, factor in zip(columns, factors, strict=True)]
        right = SHARES * int(least) - given
        reach = sum(abs(factor) * int(scaled.upper[column]) for column, factor in terms) + abs(right)
        shift = max(0, reach.bit_length() - ROW_BITS)
        # Round up on the left and down on the right: every solution of the row also satisfies the rounded one.
        scaled.add_row([(column, -(-factor >> shift)) for column, factor in terms], lower=right >> shift)
    lost = sum(tick * int(cost) for cost, kind in zip(program.cost, kinds, strict=True) if kind is _Kind.TIME)
    return scaled, lost


class _Kind(Enum):
    """The quantity that a column counts."""

    WHOLE = "whole"
    SHARE = "share"
    TIME = "time"

    @staticmethod
    def of(whole: bool, upper: int) -> _Kind:
        return _Kind.WHOLE if whole else _Kind.SHARE if upper <= 1 else _Kind.TIME


def _given(kinds: list[_Kind], factors: list[int], tick: int) -> int:
    """Return by how much a row is relaxed, in parts of a share.

    A sum of numbers rounded up is at least the rounded sum: one number may then be rounded up on the other side.
    """
    rounded = {_Kind.WHOLE: 0, _Kind.SHARE: 1, _Kind.TIME: SHARES * tick}
    against = [-factor * rounded[kind] for kind, factor in zip(kinds, factors, strict=True) if factor < 0]
    alike = all(factor in (-1, 1) for factor in factors) and _Kind.TIME not in kinds
    return 0 if alike and sum(each > 0 for each in against) <= 1 else sum(against)
