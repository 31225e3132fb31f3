"""Selection of gaps in some order until everything fits (see `gap_selection.Choice.select`), and their transfers."""

from __future__ import annotations

from remat_algorithms.offload.swaps.order_kernel.kernel_structs import NONE, Array, Given, Moves, Runs


def select(given: Given, runs: Runs, moves: Moves, count: int) -> bool:
    """Take gaps in the order of a ranking of `count` gaps, each if it helps; then drop needless ones.

    The selected gaps are recorded in `moves.taken`; False if not even all of them are enough. O(gaps * runs).
    """
    figures, level = runs.figures, moves.level
    figures.chosen = 0
    over = 0
    for place in range(figures.runs):
        level[place] = given.capacity - runs.profile[place]
        if level[place] < 0:
            over += 1
    taken = 0
    for at in range(count):
        gap = moves.ranking[at]
        if over == 0:
            break
        size, low, high = given.size[runs.gap_value[gap]], runs.gap_after[gap] + 1, runs.gap_before[gap]
        helps = False
        for place in range(low, high):
            if level[place] < 0:
                helps = True
        if helps:
            for place in range(low, high):
                if level[place] < 0 and level[place] + size >= 0:
                    over -= 1
                level[place] += size
            moves.taken[taken] = gap
            taken += 1
    if over > 0:
        return False
    # Gaps that are not needed any more are dropped, the latest first; the others keep that order.
    kept = 0
    for back in range(taken):
        moves.order[back] = moves.taken[taken - 1 - back]
    for at in range(taken):
        gap = moves.order[at]
        size, low, high = given.size[runs.gap_value[gap]], runs.gap_after[gap] + 1, runs.gap_before[gap]
        least = size
        for place in range(low, high):
            least = min(least, level[place])
        if least >= size:
            for place in range(low, high):
                level[place] -= size
        else:
            moves.taken[kept] = gap
            kept += 1
    figures.chosen = kept
    return True


def add_transfers(given: Given, runs: Runs, moves: Moves) -> None:
    """List the transfers of the chosen gaps, and the values that each run then frees (see `transfers.program_of`)."""
    figures = runs.figures
    base = figures.drops
    figures.transfers = 0
    for place in range(figures.runs):
        moves.drops[place] = runs.drop_head[place]
        moves.used_head[place] = NONE
    for copy in range(figures.copies):
        out = NONE
        latest = NONE
        gap = runs.first_gap[copy]
        while gap != NONE:
            if moves.chosen[gap]:
                if out == NONE:
                    out = figures.transfers
                    _leave(runs, moves, copy, gap)
                else:
                    # A value that is elsewhere already is only dropped here.
                    place, entry = runs.gap_after[gap], figures.drops
                    runs.drop_value[entry] = runs.value[copy]
                    runs.drop_next[entry] = moves.drops[place]
                    moves.drops[place] = entry
                    figures.drops = entry + 1
                _return(runs, moves, gap, out if latest == NONE else NONE)
                latest = gap
            gap = runs.gap_next[gap]
    figures.drops = base


def _leave(runs: Runs, moves: Moves, copy: int, gap: int) -> None:
    after = runs.gap_after[gap]
    transfer = _add(runs, moves, runs.value[copy], runs.written[copy], runs.figures.runs, moves.leave_with[gap])
    moves.leaves[transfer] = 1
    moves.last_use[transfer] = after
    moves.previous[transfer] = NONE
    moves.awaited[transfer] = runs.next_run[copy]
    if after >= 0:
        moves.used_next[transfer] = moves.used_head[after]
        moves.used_head[after] = transfer


def _return(runs: Runs, moves: Moves, gap: int, previous: int) -> None:
    before = runs.gap_before[gap]
    transfer = _add(runs, moves, runs.gap_value[gap], runs.gap_after[gap], before, moves.return_with[gap])
    moves.leaves[transfer] = 0
    moves.last_use[transfer] = NONE
    moves.previous[transfer] = previous
    moves.awaited[transfer] = before if before < runs.figures.runs else NONE


def _add(runs: Runs, moves: Moves, value: int, ready: int, needed: int, begin: int) -> int:
    transfer = runs.figures.transfers
    runs.figures.transfers += 1
    moves.move_value[transfer] = value
    moves.ready[transfer] = ready
    moves.needed[transfer] = needed
    moves.begin[transfer] = begin
    moves.ended[transfer] = 0
    moves.blocked[transfer] = NONE
    moves.used_next[transfer] = NONE
    return transfer


def queue(moves: Moves, transfers: int, runs: int, leaving: bool) -> int:
    """Queue the transfers of one direction in the order in which they go; return the first one.

    Transfers out go in the order in which they become ready, transfers back in the order of use. O(transfers + runs).
    """
    bucket, order = moves.bucket, moves.order
    for place in range(runs + 2):
        bucket[place] = 0
    for transfer in range(transfers):
        if (moves.leaves[transfer] != 0) == leaving:
            bucket[_key(moves, transfer, leaving) + 1] += 1
    total = 0
    for place in range(runs + 2):
        total += bucket[place]
        bucket[place] = total
    for back in range(transfers):
        transfer = transfers - 1 - back
        if (moves.leaves[transfer] != 0) == leaving:
            place = _key(moves, transfer, leaving) + 1
            bucket[place] -= 1
            order[bucket[place]] = transfer
    if leaving:
        _sort_by_begin(moves, order, total)
    first = NONE
    for back in range(total):
        transfer = order[total - 1 - back]
        moves.queued[transfer] = first
        first = transfer
    return first


def _key(moves: Moves, transfer: int, leaving: bool) -> int:
    return moves.ready[transfer] if leaving else moves.needed[transfer]  # type: ignore[no-any-return]


def _sort_by_begin(moves: Moves, order: Array, count: int) -> None:
    """Sort the transfers that become ready with one run by the run with which they may start."""
    for end in range(1, count):
        transfer = order[end]
        at = end
        while (
            at > 0
            and moves.ready[order[at - 1]] == moves.ready[transfer]
            and moves.begin[order[at - 1]] > moves.begin[transfer]
        ):
            order[at] = order[at - 1]
            at -= 1
        order[at] = transfer
