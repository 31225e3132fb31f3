"""Start times (see `dispatch`) by event simulation, with at most a run and two transfers active."""

from __future__ import annotations

from remat_algorithms.offload.swaps.order_kernel.gap_selection import add_transfers, queue, select
from remat_algorithms.offload.swaps.order_kernel.kernel_structs import NONE, Given, Moves, Runs
from remat_algorithms.offload.swaps.order_kernel.memory_profiles import (
    dropped_bytes,
    plan_profile,
    read_bytes,
    written_bytes,
)
from remat_algorithms.offload.swaps.order_kernel.order_facts import look

LOOK, SELECT, TIME = range(3)
"""Actions of `act`: analyse an order, take gaps in the order of a ranking, simulate with their transfers."""

LOOKED_AT = 8
"""Waiting transfers of a channel that are tried before it stays idle."""

RUN, OUT, BACK, NOW = range(4)
"""Places in `Moves.clock`."""


def act(given: Given, runs: Runs, moves: Moves, what: int, count: int) -> bool:
    """Perform an action; `count`: number of runs to analyse, or of ranked gaps. Return whether it was possible."""
    if what == LOOK:
        if not look(given, runs, count):
            return False
        for place in range(runs.figures.runs):
            moves.drops[place] = runs.drop_head[place]
        plan_profile(given, runs, moves, 0, runs.profile)
        return True
    if what == SELECT:
        return select(given, runs, moves, count)
    return start_all(given, runs, moves)


def start_all(given: Given, runs: Runs, moves: Moves) -> bool:
    """Start all runs and the transfers of the chosen gaps; return False if they do not fit.

    O((runs + transfers) (the runs that a transfer comes early by)).
    """
    figures, clock, level = runs.figures, moves.clock, moves.level
    add_transfers(given, runs, moves)
    plan_profile(given, runs, moves, figures.transfers, level)
    for place in range(figures.runs):
        level[place] = given.capacity - level[place]
        if level[place] < 0:
            return False
    _prepare(given, runs, moves)
    _start(given, runs, moves)
    while figures.run_turn or figures.out_turn or figures.back_turn:
        which = _next(runs, moves)
        clock[NOW] = clock[which]
        while which != NONE and clock[which] == clock[NOW]:
            if which == RUN:
                _end_run(given, runs, moves)
            elif which == OUT:
                figures.out_turn = 0
                _end_transfer(given, runs, moves, figures.out)
            else:
                figures.back_turn = 0
                _end_transfer(given, runs, moves, figures.back)
            which = _next(runs, moves)
        _start(given, runs, moves)
    return figures.unfinished == figures.runs and figures.leaving == NONE and figures.coming == NONE


def _prepare(given: Given, runs: Runs, moves: Moves) -> None:
    figures = runs.figures
    for place in range(figures.runs + 1):
        moves.pending[place] = 0
        moves.ended_runs[place] = 0
    for transfer in range(figures.transfers):
        if moves.awaited[transfer] != NONE:
            moves.pending[moves.awaited[transfer]] += 1
    for value in range(len(given.size)):
        moves.present[value] = 0
    figures.free = given.capacity - given.static
    for entry in range(len(given.inputs)):
        figures.free -= given.size[given.inputs[entry]]
        moves.present[given.inputs[entry]] = 1
    figures.unfinished = 0
    figures.latest = NONE
    figures.turn = 0
    figures.run_turn = 0
    figures.out_turn = 0
    figures.back_turn = 0
    for place in range(4):
        moves.clock[place] = 0
    figures.leaving = queue(moves, figures.transfers, figures.runs, True)
    figures.coming = queue(moves, figures.transfers, figures.runs, False)


def _next(runs: Runs, moves: Moves) -> int:
    """Return the active step that ends next, of equals the one that started first; NONE if none is active."""
    figures, clock = runs.figures, moves.clock
    which, turn = NONE, 0
    if figures.run_turn:
        which, turn = RUN, figures.run_turn
    if figures.out_turn and (
        which == NONE or clock[OUT] < clock[RUN] or (clock[OUT] == clock[RUN] and figures.out_turn < turn)
    ):
        which, turn = OUT, figures.out_turn
    if figures.back_turn and (
        which == NONE or clock[BACK] < clock[which] or (clock[BACK] == clock[which] and figures.back_turn < turn)
    ):
        which = BACK
    return which


def _start(given: Given, runs: Runs, moves: Moves) -> None:
    """Start all steps that can start now."""
    figures = runs.figures
    again = True
    while again:
        again = figures.run_turn == 0 and _start_run(given, runs, moves)
        for channel in range(2):
            busy = False
            if given.out_channel == channel and figures.out_turn:
                busy = True
            if given.back_channel == channel and figures.back_turn:
                busy = True
            if not busy and _start_transfer(given, runs, moves, channel):
                again = True


def _start_run(given: Given, runs: Runs, moves: Moves) -> bool:
    figures = runs.figures
    place = figures.latest + 1
    if place >= figures.runs or moves.pending[place] > 0:
        return False
    task = runs.task[place]
    reused = 0
    if given.in_place[task]:
        freed = dropped_bytes(given, runs, moves, place)
        transfer = moves.used_head[place]
        while transfer != NONE:
            if moves.ended[transfer]:
                freed += read_bytes(given, task, moves.move_value[transfer])
            transfer = moves.used_next[transfer]
        reused = min(freed, written_bytes(given, task))
    needed = given.workspace[task] - reused + written_bytes(given, task)
    if needed > figures.free:
        return False
    figures.free -= needed
    figures.reused = reused
    figures.latest = place
    figures.turn += 1
    figures.run_turn = figures.turn
    moves.started[place] = moves.clock[NOW]
    moves.clock[RUN] = moves.clock[NOW] + given.time[task]
    return True


def _start_transfer(given: Given, runs: Runs, moves: Moves, channel: int) -> bool:
    """Start the first possible one of a channel's first waiting transfers: out before back, unless runs wait."""
    figures = runs.figures
    coming = figures.coming if given.back_channel == channel else NONE
    urgent = False
    if coming != NONE:
        urgent = moves.needed[coming] <= figures.unfinished + 1
    for turn in range(2):
        leaving = (turn == 0) != urgent
        if (given.out_channel if leaving else given.back_channel) != channel:
            continue
        before = NONE
        transfer = figures.leaving if leaving else figures.coming
        for _ in range(LOOKED_AT):
            if transfer == NONE:
                break
            if leaving and moves.ready[transfer] > figures.latest:
                break  # those after it are not ready, either
            if _may_start(given, runs, moves, transfer):
                if before != NONE:
                    moves.queued[before] = moves.queued[transfer]
                elif leaving:
                    figures.leaving = moves.queued[transfer]
                else:
                    figures.coming = moves.queued[transfer]
                _begin(given, runs, moves, transfer, leaving)
                return True
            before = transfer
            transfer = moves.queued[transfer]
    return False


def _may_start(given: Given, runs: Runs, moves: Moves, transfer: int) -> bool:
    figures = runs.figures
    if moves.ready[transfer] >= 0 and moves.ended_runs[max(moves.ready[transfer], 0)] == 0:
        return False
    if moves.previous[transfer] >= 0 and moves.ended[max(moves.previous[transfer], 0)] == 0:
        return False
    if moves.begin[transfer] > figures.latest:
        return False
    if moves.leaves[transfer]:
        return True
    size = given.size[moves.move_value[transfer]]
    if size > figures.free:
        return False
    if moves.begin[transfer] >= 0 or moves.needed[transfer] <= figures.unfinished:
        return True
    # From its use on, the profile counts it; a value that no run waits for counts during the last one.
    if moves.blocked[transfer] >= figures.unfinished:
        return False
    low, high = figures.unfinished, min(moves.needed[transfer], figures.runs - 1)
    least = NONE
    for place in range(low, high):
        if least == NONE or moves.level[place] < moves.level[least]:
            least = place
    if least != NONE and moves.level[least] < size:
        moves.blocked[transfer] = least
        return False
    for place in range(low, high):
        moves.level[place] -= size
    return True


def _begin(given: Given, runs: Runs, moves: Moves, transfer: int, leaving: bool) -> None:
    figures, value = runs.figures, moves.move_value[transfer]
    figures.turn += 1
    if leaving:
        figures.out = transfer
        figures.out_turn = figures.turn
        moves.clock[OUT] = moves.clock[NOW] + given.out[value]
    else:
        figures.free -= given.size[value]
        figures.back = transfer
        figures.back_turn = figures.turn
        moves.clock[BACK] = moves.clock[NOW] + given.back[value]


def _end_run(given: Given, runs: Runs, moves: Moves) -> None:
    figures = runs.figures
    place = figures.latest
    task = runs.task[place]
    figures.run_turn = 0
    moves.ended_runs[place] = 1
    figures.unfinished = place + 1
    figures.free += given.workspace[task] - figures.reused
    for entry in range(given.write_start[task], given.write_start[task + 1]):
        value = given.write[entry]
        _free(given, runs, moves, value)  # the old copy, where there is one
        moves.present[value] = 1
    dropped = moves.drops[place]
    while dropped != NONE:
        _free(given, runs, moves, runs.drop_value[dropped])
        dropped = runs.drop_next[dropped]
    # Values that have left by now are freed with the run that uses them last.
    transfer = moves.used_head[place]
    while transfer != NONE:
        if moves.ended[transfer]:
            _free(given, runs, moves, moves.move_value[transfer])
        transfer = moves.used_next[transfer]


def _end_transfer(given: Given, runs: Runs, moves: Moves, transfer: int) -> None:
    moves.ended[transfer] = 1
    awaited = moves.awaited[transfer]
    if awaited != NONE:
        moves.pending[awaited] -= 1
    if moves.leaves[transfer] == 0:
        moves.present[moves.move_value[transfer]] = 1
    elif moves.last_use[transfer] < runs.figures.unfinished:
        _free(given, runs, moves, moves.move_value[transfer])


def _free(given: Given, runs: Runs, moves: Moves, value: int) -> None:
    if moves.present[value]:
        moves.present[value] = 0
        runs.figures.free += given.size[value]
