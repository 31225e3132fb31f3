"""Local search over pipeline orders and over the options of each stage and micro-batch; interpreted, a plain twin.

`walk` changes a few keys and options of the current schedule, whose keys are its start times. `drift` looks for regular
schedules. In these, every micro-batch repeats the previous one a period later, until memory or a busy device delays it.
Few numbers describe them for any number of micro-batches. Their recomputation is regular, too: with a mean level
between two, micro-batches alternate between these. Both accept a neighbour that is not, or hardly, worse.
"""

from __future__ import annotations

import math

from remat_algorithms.parallel.pipeline.local_search.list_scheduling import schedule
from remat_algorithms.parallel.pipeline.local_search.objective import figure
from remat_algorithms.parallel.pipeline.local_search.priority_keys import (
    BACK,
    FREE,
    ONE,
    ONWARDS,
    SO_FAR,
    SOME,
    STRICT,
    copy_gaps,
    draw_shift,
    first_gaps,
    move_keys,
    random,
    repeat,
    vary_gaps,
)
from remat_algorithms.parallel.pipeline.local_search.records import Facts, State
from remat_algorithms.parallel.pipeline.local_search.transfers import date_returns

BUILD, TAKE, DRIFT, WALK = range(4)
"""Actions of `act`."""


def act(facts: Facts, state: State, action: int, moves: int, amount: float, bound: float) -> float:
    """Build a schedule, accept the last one, or search; return the objective value of a built schedule.

    One entry point saves compile time.

    Parameters
    ----------
    facts : Facts
    state : State
    action : int
        `BUILD` builds a schedule from the keys and options, `TAKE` accepts the last one, the others search.
    moves : int
        Number of moves of a search.
    amount : float
        `patience` of a schedule, objective value of an accepted one, `spread` of `drift`, or `heat` of `walk`.
    bound : float
        Objective value at which a search stops.
    """
    if action == BUILD:
        return _built(facts, state, amount)
    if action == TAKE:
        take(facts, state, amount)
    elif not facts.offloads and action == DRIFT:
        drift(facts, state, moves, amount, bound)
    else:
        walk(facts, state, moves, amount, bound)
    return state.progress.current


def walk(facts: Facts, state: State, moves: int, heat: float, bound: float) -> None:
    """Make the given number of moves, or fewer if the bound is reached."""
    progress = state.progress
    for _ in range(moves):
        if progress.best <= bound:
            return
        progress.moves += 1
        _restore(facts, state, random(progress) < BACK)
        if facts.offloads:
            _change_with_host(facts, state)
        else:
            _change(facts, state)
        value = _built(facts, state, STRICT if random(progress) < facts.strict else FREE)
        if facts.offloads and value == math.inf:
            # With a host, many keys deadlock.
            continue
        if value <= progress.current + heat * facts.step * random(progress) * random(progress):
            take(facts, state, value)


def drift(facts: Facts, state: State, moves: int, spread: float, bound: float) -> None:
    """Look for a regular schedule; stop at the bound.

    The search starts with random gaps of up to `spread` loads, and with the means of the current levels. If `spread` is
    negative, it starts with the current gaps and means.
    """
    progress = state.progress
    begun = spread < 0.0
    if not begun:
        first_gaps(facts, state, spread)
        if facts.chooses:
            _first_shares(facts, state)
    for number in range(moves):
        if progress.best <= bound:
            return
        progress.moves += 1
        period = progress.period
        copy_gaps(facts, state, 1, 0)
        if begun or number > 0:
            for _ in range(1 + int(3 * random(progress))):
                if random(progress) < 0.1:
                    period = facts.load * (1 + facts.stretch * random(progress) * random(progress))
                _vary(facts, state)
        _lay_out(facts, state, period)
        kind = random(progress)
        value = _built(facts, state, STRICT if kind < 0.4 else (FREE if kind < 0.8 else 0.0))
        if value <= progress.current:
            take(facts, state, value)
            progress.period = period
            copy_gaps(facts, state, 0, 1)


def _built(facts: Facts, state: State, patience: float) -> float:
    """Build a schedule; return its objective value, infinite if it fails."""
    return figure(facts, state) if schedule(facts, state, patience) else math.inf


def take(facts: Facts, state: State, value: float) -> None:
    """Accept the last schedule as the current one, and as the best one if it is better."""
    progress = state.progress
    better = value < progress.best
    if facts.offloads:
        date_returns(facts, state)
    for index in range(len(facts.runs)):
        for batch in range(facts.runs[index]):
            state.current[index, batch] = state.start[index, batch]
            if better:
                state.best[index, batch] = state.start[index, batch]
    if facts.chooses:
        for stage in range(facts.stages):
            for batch in range(facts.batches):
                state.current_option[stage, batch] = state.option[stage, batch]
                if better:
                    state.best_option[stage, batch] = state.option[stage, batch]
                    state.best_early[stage, batch] = state.early[stage, batch]
    progress.current = value
    if better:
        progress.best = value
        progress.best_length = progress.length
        for number in range(progress.length):
            state.best_order[number, 0] = state.order[number, 0]
            state.best_order[number, 1] = state.order[number, 1]


def _restore(facts: Facts, state: State, best: bool) -> None:
    """Set keys and options to those of the current schedule, after returning to the best one if `best`."""
    for index in range(len(facts.runs)):
        for batch in range(facts.runs[index]):
            if best:
                state.current[index, batch] = state.best[index, batch]
            state.key[index, batch] = state.current[index, batch]
    if facts.chooses:
        for stage in range(facts.stages):
            for batch in range(facts.batches):
                if best:
                    state.current_option[stage, batch] = state.best_option[stage, batch]
                state.option[stage, batch] = state.current_option[stage, batch]
    if best:
        state.progress.current = state.progress.best


def _change(facts: Facts, state: State) -> None:
    """Change the keys of one operation, of a class for some micro-batches, or of a micro-batch; or some levels."""
    progress = state.progress
    for _ in range(1 + int(3 * random(progress) * random(progress))):
        kind = random(progress)
        index = int(random(progress) * len(facts.runs))
        batch = int(random(progress) * facts.batches)
        shift = draw_shift(facts, progress)
        if kind < facts.one:
            move_keys(facts, state, ONE, index, batch, shift)
        elif kind < facts.some:
            move_keys(facts, state, SOME, index, batch, shift)
        elif kind < facts.so_far:
            move_keys(facts, state, ONWARDS if kind < facts.onwards else SO_FAR, index, batch, shift)
        else:
            _change_levels(facts, state, index % facts.stages, batch)


def _change_levels(facts: Facts, state: State, stage: int, batch: int) -> None:
    """Change the level of a stage for one or several micro-batches; or exchange levels between two pairs."""
    progress = state.progress
    kind = random(progress)
    last = batch
    if kind < 0.25:
        last = batch + int((facts.batches - batch) * random(progress))
    change = 1 if random(progress) < 0.4 else -1
    for number in range(batch, last + 1):
        level = state.option[stage, number] + change
        state.option[stage, number] = max(0, min(facts.levels[stage] - 1, level))
    if kind > 0.6:
        device = facts.device[stage]
        first, end = facts.first_own[device], facts.first_own[device + 1]
        other = facts.own[first + int(random(progress) * (end - first))]
        number = int(random(progress) * facts.batches)
        level = state.option[other, number] - change
        state.option[other, number] = max(0, min(facts.levels[other] - 1, level))


def _change_with_host(facts: Facts, state: State) -> None:
    """Change some keys, or the options of some micro-batches."""
    progress = state.progress
    stages, batches = facts.stages, facts.batches
    for _ in range(1 + int(3 * random(progress) * random(progress))):
        kind = random(progress)
        stage = int(random(progress) * stages)
        batch = int(random(progress) * batches)
        last = batch
        if random(progress) < 0.5:
            last = batch + int((batches - batch) * random(progress))
        if kind < 0.3:
            _change_options(facts, state, stage, batch, last)
            continue
        shift = draw_shift(facts, progress)
        if kind < 0.4:
            move_keys(facts, state, ONWARDS, 0, batch, shift)
        else:
            index = int(random(progress) * 4) * stages + stage
            for number in range(batch, last + 1):
                state.key[index, number] += shift


def _change_options(facts: Facts, state: State, stage: int, first: int, last: int) -> None:
    """Change the offloaded part or the recomputation level of some micro-batches of a stage."""
    progress = state.progress
    levels, width = facts.levels[stage], facts.width
    option = state.option[stage, first]
    level, part = option // width, option % width
    if levels == 1 and facts.parts[stage, 0] <= 2:
        part = 1 - part
    else:
        kind = random(progress)
        if kind < 0.35:
            part = int(random(progress) * facts.parts[stage, level])
        elif kind < 0.7:
            level += 1 if random(progress) < 0.5 else -1
        else:
            level = int(random(progress) * levels)
            part = int(random(progress) * facts.parts[stage, level])
        level = max(0, min(levels - 1, level))
    option = level * width + min(part, facts.parts[stage, level] - 1)
    for number in range(first, last + 1):
        state.option[stage, number] = option


def _first_shares(facts: Facts, state: State) -> None:
    """Start with the mean of the current levels of each stage."""
    for stage in range(facts.stages):
        state.share[1, stage] = 0.0
        for batch in range(facts.batches):
            state.share[1, stage] += state.current_option[stage, batch] / facts.batches


def _vary(facts: Facts, state: State) -> None:
    """Change one gap, some consecutive gaps, the delay of a stage's W, or the mean levels of stages."""
    progress = state.progress
    kind = random(progress)
    shift = facts.load * (random(progress) + random(progress) - 1)
    first = int(random(progress) * 2 * facts.stages)
    if kind <= facts.gaps:
        vary_gaps(facts, state, kind, facts.several, first, shift)
        return
    stage = first % facts.stages
    end = stage + 1
    if kind > 0.9:
        end = stage + 1 + int(random(progress) * (facts.stages - stage))
    change = random(progress) + random(progress) - 1
    for index in range(stage, end):
        state.share[0, index] = max(0.0, min(facts.levels[index] - 1.0, state.share[0, index] + change))


def _lay_out(facts: Facts, state: State, period: float) -> None:
    """Compute the keys and levels of a regular schedule."""
    stages = facts.stages
    if facts.chooses:
        for stage in range(stages):
            share = state.share[0, stage]
            for batch in range(facts.batches):
                state.option[stage, batch] = int(share * (batch + 1) + 0.5) - int(share * batch + 0.5)
    clock = 0.0
    for step in range(2 * stages):
        index = step if step < stages else 3 * stages - 1 - step
        stage = index % stages
        if step < stages:
            clock = 0.0 if facts.head[stage] else clock + facts.delay[stage]
        elif facts.tail[stage]:
            clock = state.offset[stage] + facts.duration[stage]
        else:
            clock += facts.delay[stage + 1]
        clock += state.gap[0, step]
        state.offset[index] = clock
        clock += facts.duration[index]
        if facts.chooses and step >= stages:
            clock += facts.recompute_time[stage, int(state.share[0, stage] + 0.5)]
    repeat(facts, state, period)
