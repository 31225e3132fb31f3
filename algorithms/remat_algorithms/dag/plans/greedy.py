"""The greedy: from too much memory to none, by the rerun that saves most for its time; interpreted or compiled.

A plan is a sequence of runs in the order of their keys (stage, item); stage t ends with the first run of the
order's task t, which has the greatest key in it. See `replay` for how positions and accesses are coded.
"""

from __future__ import annotations

import math

from remat_algorithms.dag.plans.candidates import collect, propose, release
from remat_algorithms.dag.plans.differences import clear, gain_of
from remat_algorithms.dag.plans.plans import draw, insert, merge, put, take_trial
from remat_algorithms.dag.plans.records import CANDIDATES, NOW, TRIAL, Packed, Room, Work
from remat_algorithms.dag.plans.replay import replay

PEAKS = 4
"""Positions that are looked at, from the highest memory down, before the greedy gives up."""

WHIMS = 0.7
"""Share of the runs with noise that have whims: what they draw at first holds for the run."""

BATCH_SHARE, KEPT_SHARE = 0.5, 0.5
"""Share of the excess that candidates taken at once may free at most, and of their estimate that they must gain."""

LARGEST_BATCH = 2000
"""Most runs that candidates taken at once may insert."""


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
    """Make the plan to try from the present one and a candidate; say whether there is room for it."""
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
        # Estimates seldom promise too little: what promises less than the best has brought is left.
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
    """Whether collected reruns make nothing that a candidate of the batch reads, and read nothing that one frees."""
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
    """Note what collected reruns make and read."""
    for index in range(listed):
        task = room.todo[index]
        for entry in range(tables.write_start[task], tables.write_start[task + 1]):
            room.freed_by[tables.write[entry]] = batch
        for entry in range(tables.read_start[task], tables.read_start[task + 1]):
            room.read_by[tables.read[entry]] = batch


def _batch(tables: Packed, work: Work, room: Room, budget: int, peak: int, found: int) -> float:
    """Make the plan to try from several candidates; return what they gain by estimate, 0 where there are not several.

    The best ones that have nothing to do with each other, until they free their share of the excess.
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
    """Add reruns to the present plan until it fits; return the area that is left (0: it fits).

    In each step, at the position of highest memory: every value that is resident across it could be freed
    after its last use before, and made again for its next use; likewise what a run in place reads there. The
    `CANDIDATES` ones with the least (time + 1) / gain^alpha by estimate are replayed, and the best by true gain is
    taken. Where none gains, the next lower positions are looked at; then, unless a plan is known, the area is
    measured by stages, since each rerun amid many that exceed the budget exceeds it, too. In large graphs many
    candidates are taken at once, as long as they gain most of what they promise. `room.state.stop` ends the loop early.
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
    """Make the plan to try from the present one, with less area, by stages or by runs; return whether there is one."""
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
