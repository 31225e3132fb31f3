"""The greedy: add the rerun that saves most for its time until the plan fits; interpreted or compiled.

A plan is a sequence of runs in the order of their keys (stage, item). Stage t ends with the first run of the order's
task t, which has the greatest key in it. `replay` explains the encoding of positions and accesses.
"""

from __future__ import annotations

import math

from remat_algorithms.dag.plans.candidates import collect, propose, release
from remat_algorithms.dag.plans.differences import clear, gain_of
from remat_algorithms.dag.plans.plans import draw, insert, merge, put, take_trial
from remat_algorithms.dag.plans.records import CANDIDATES, NOW, TRIAL, Packed, Room, Work
from remat_algorithms.dag.plans.replay import replay

PEAKS = 4
"""Number of positions to try, from the highest memory down, before the greedy gives up."""

WHIMS = 0.7
"""Share of the runs with noise that also fix random choices for the whole run."""

BATCH_SHARE, KEPT_SHARE = 0.5, 0.5
"""Maximum share of the excess that a batch of candidates frees, and minimum share of its estimate that it must gain."""

LARGEST_BATCH = 2000
"""Maximum number of runs that a batch of candidates inserts."""


def _next_peak(work: Work, room: Room, peak: int, budget: int) -> int:
    """Return the position of the next lower memory above the budget, or -1; equal ones from the front."""
    level = work.memory[peak]
    best = -1
    for place in range(room.length[NOW]):
        other = work.memory[place]
        lower = other < level or (other == level and place > peak)
        if lower and other > budget and (best < 0 or other > work.memory[best]):
            best = place
    return best


def _try(tables: Packed, work: Work, room: Room, candidate: int) -> bool:
    """Build the trial plan from the current plan and a candidate; return whether it fits into the arrays."""
    value = room.candidate[candidate]
    at = room.at[value]
    listed = collect(tables, work, room, value, at, room.deepest[candidate], math.inf)
    clear(room)
    return insert(room, listed, at) >= 0


def _area(work: Work, by_stage: bool) -> float:
    return work.figures.stage_area if by_stage else work.figures.area


def _best_of(
    tables: Packed, work: Work, spare: Work, room: Room, budget: int, found: int, by_stage: bool, alpha: float
) -> int:
    """Replay the candidates; return the one with the best true gain for its time, or -1."""
    best = -1
    least = math.inf
    for index in range(min(found, CANDIDATES)):
        # Estimates are seldom too low: skip candidates that promise less than the best true gain.
        if room.state.stop != 0 or room.score[index] >= least:
            break
        if not _try(tables, work, room, index):
            continue
        replay(tables, spare, room, TRIAL, budget)
        gain = _area(work, by_stage) - _area(spare, by_stage)
        if gain <= 0.0:
            continue
        score = (max(0.0, spare.figures.total - work.figures.total) + 1.0) / math.pow(gain, alpha)
        score *= room.factor[room.candidate[index]]
        if score < least:
            least = score
            best = index
    return best


def _is_apart(tables: Packed, room: Room, listed: int, batch: int) -> bool:
    """Whether collected reruns write no value that a candidate of the batch reads, and read none that one frees."""
    for index in range(listed):
        task = room.todo[index]
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            if room.read_by[tables.write[entry]] == batch:
                return False
        for entry in range(tables.read_start[task], tables.read_start[task + 1]):
            if room.freed_by[tables.read[entry]] == batch:
                return False
    return True


def _join(tables: Packed, room: Room, listed: int, batch: int) -> None:
    """Record the values that collected reruns write and read."""
    for index in range(listed):
        task = room.todo[index]
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            room.freed_by[tables.write[entry]] = batch
        for entry in range(tables.read_start[task], tables.read_start[task + 1]):
            room.read_by[tables.read[entry]] = batch


def _batch(tables: Packed, work: Work, room: Room, budget: int, peak: int, found: int) -> float:
    """Build the trial plan from several candidates; return their estimated gain, or 0 if there are fewer than two.

    The batch takes the best independent candidates until they free their share of the excess.
    """
    room.state.batch += 1
    batch = room.state.batch
    wanted = BATCH_SHARE * float(work.memory[peak] - budget)
    taken = 0
    runs = 0
    for index in range(found):
        value = room.candidate[index]
        room.taken[index] = 0
        if wanted <= 0.0 or room.freed_by[value] == batch:
            continue
        listed = collect(tables, work, room, value, room.at[value], room.deepest[index], math.inf)
        clear(room)
        if runs + listed <= LARGEST_BATCH and _is_apart(tables, room, listed, batch):
            runs += listed
            _join(tables, room, listed, batch)
            room.taken[index] = 1
            wanted -= float(tables.size[value])
            taken += 1
    if taken < 2:
        return 0.0
    room.state.added = 0
    for index in range(found):
        if room.taken[index] == 1:
            value = room.candidate[index]
            at = room.at[value]
            listed = collect(tables, work, room, value, at, room.deepest[index], math.inf)
            release(tables, work, room, listed, at)
            put(room, listed, at)
    estimate = gain_of(work, room, budget)
    return estimate if merge(room) >= 0 else 0.0


def greedy(tables: Packed, work: Work, spare: Work, room: Room, budget: int, alpha: float, noise: float) -> float:
    """Add reruns to the current plan until it fits; return the remaining area (0: it fits).

    Each step considers the position of highest memory. Every value resident across it could be freed after its previous
    use and recomputed for its next use. The same holds for values that a run in place reads there. The step replays the
    `CANDIDATES` values with the lowest estimated (time + 1) / gain^alpha, and takes the one with the best true gain. If
    none gains, it tries the next lower positions. If these fail and no plan is known, it measures the area by stages,
    since each rerun among many that exceed the budget exceeds it, too. In large graphs, a step takes many candidates at
    once while they gain most of their estimate. `room.state.stop` ends the loop early.
    """
    area = replay(tables, work, room, NOW, budget)
    by_stage = len(room.score) > CANDIDATES
    room.state.salt = 0
    if noise > 0.0 and draw(room) < WHIMS:
        room.state.salt = 1 + int(draw(room) * 1000000)
    while area > 0.0 and room.state.stop == 0 and work.figures.total <= room.state.dearest:
        if not _step(tables, work, spare, room, budget, by_stage, alpha, noise):
            if by_stage or room.state.dearest < math.inf:
                break
            by_stage = True
            continue
        take_trial(room)
        area = replay(tables, work, room, NOW, budget)
    room.cost[NOW] = work.figures.total
    return area


def _step(
    tables: Packed, work: Work, spare: Work, room: Room, budget: int, by_stage: bool, alpha: float, noise: float
) -> bool:
    """Build a trial plan with less area, by stages or by runs, from the current one; return whether one was found."""
    peak = work.figures.highest
    for _ in range(PEAKS):
        found = propose(tables, work, room, budget, peak, alpha, noise)
        if len(room.score) > CANDIDATES:
            estimate = _batch(tables, work, room, budget, peak, found)
            if estimate > 0.0:
                replay(tables, spare, room, TRIAL, budget)
                if _area(work, by_stage) - _area(spare, by_stage) >= KEPT_SHARE * estimate:
                    return True
        best = _best_of(tables, work, spare, room, budget, found, by_stage, alpha)
        if best >= 0:
            return _try(tables, work, room, best)
        peak = _next_peak(work, room, peak, budget)
        if peak < 0:
            return False
    return False
