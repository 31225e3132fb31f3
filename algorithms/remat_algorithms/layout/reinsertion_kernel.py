"""The search of `remat_algorithms.layout.reinsertion`: take rows out, keep the order of the others, insert them."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from remat.plugin import IntArray
from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.kit.compile.records import cells

NEVER = 1 << 62
"""More than any arena."""

SKIP = 20
"""One place of so many is skipped, so that a row does not always return to the same place."""

ENOUGH = 7
"""Longest paths up to this many tenths of the way from the lower bound to the target count as equal."""

CRITICAL = 7
"""The seed of this many turns in ten is a row of a longest path."""

ANY, NEAR, TIGHT, KINDS = 0, 1, 2, 3
"""Rows that are taken out with the seed: any in the window, those at similar addresses, those on long paths."""


@cells
class Counts(ctypes.Structure):
    """State of a run.

    The number of placed rows, random numbers, the work done and its limit, the largest arena that improves the best
    one, that of the current layout, and an increase of the arena that every second turn may accept at the beginning.
    """

    placed: int
    random: int
    work: int
    limit: int
    target: int
    current: int
    heat: int


class Rows(NamedTuple):
    """Buffers and reserved ranges.

    Attributes
    ----------
    first, last : (rows,) int64
        Sections, half-open.
    slot : (rows,) int64
        Begin of a row's sections in `below` and `above`.
    size, extent : (rows,) int64
        Bytes up to the next row, and up to the end of the arena if no row follows.
    fixed : (rows,) int64
        The offset that a row must have, or -1.
    most, width : int
        The most rows that are taken out, and the most sections of the window that they share.
    bound : int
        The arena at which to stop.
    """

    first: IntArray
    last: IntArray
    slot: IntArray
    size: IntArray
    extent: IntArray
    fixed: IntArray
    most: int
    width: int
    bound: int


class Layout(NamedTuple):
    """A layout, as an order of rows.

    Attributes
    ----------
    order : (rows,) int64
        The placed rows by ascending end.
    below, above : (places,) int64
        For each section of a row, the next placed row there, or -1.
    lowest : (sections,) int64
        The lowest placed row, or -1.
    end : (rows,) int64
        The longest path up to the end of the row: every row lies as low as the order allows.
    tail : (rows,) int64
        The longest path from the begin of the row to the end of the arena; from a fixed offset, at least up to the
        target.
    """

    order: IntArray
    below: IntArray
    above: IntArray
    lowest: IntArray
    end: IntArray
    tail: IntArray


class Work(NamedTuple):
    """What a turn needs.

    Attributes
    ----------
    out : (rows,) int64
        Rows that are taken out.
    is_out, end_changes, tail_changes : (rows,) int64
        Whether a row is taken out, and whether its `end` and `tail` may change.
    path : (rows + 1,) int64
        The longest path from a row that follows a place.
    best : (rows,) int64
        Offsets of the best layout.
    """

    out: IntArray
    is_out: IntArray
    end_changes: IntArray
    tail_changes: IntArray
    path: IntArray
    best: IntArray
    at: Counts


def run(rows: Rows, now: Layout, before: Layout, turn: Work, work: int) -> None:
    """Search in slices: this one ends at `work`. `before` is the layout before a turn."""
    while turn.at.work < work and turn.at.target >= rows.bound:
        copy(now, before)
        turn.at.work += now.below.shape[0] // 2
        out = take_out(rows, now, turn)
        arrange(rows, turn, out)
        update_tails(rows, now, turn)
        arena = update_ends(rows, now, turn)
        for k in range(out):
            insert(rows, now, turn, turn.out[k])
            update_tails(rows, now, turn)
            arena = update_ends(rows, now, turn)
        if arena <= turn.at.target:
            for row in range(rows.size.shape[0]):
                turn.best[row] = now.end[row] - rows.size[row]
            turn.at.current = arena
            turn.at.target = arena - 1
            for row in range(rows.size.shape[0]):
                turn.tail_changes[row] = 1 if rows.fixed[row] >= 0 else 0
            update_tails(rows, now, turn)
        elif arena <= turn.at.current + tolerance(turn):
            turn.at.current = arena
        else:
            copy(before, now)
            turn.at.placed = rows.size.shape[0]


def prepare(rows: Rows, now: Layout, turn: Work) -> None:
    """Link the rows in their order, and compute their paths."""
    turn.at.placed = 0
    for k in range(rows.size.shape[0]):
        link(rows, now, turn, now.order[k], k)
        turn.at.placed += 1
    update_tails(rows, now, turn)
    update_ends(rows, now, turn)


def copy(source: Layout, target: Layout) -> None:
    """Copy a layout."""
    for k in range(source.order.shape[0]):
        target.order[k] = source.order[k]
        target.end[k] = source.end[k]
        target.tail[k] = source.tail[k]
    for k in range(source.below.shape[0]):
        target.below[k] = source.below[k]
        target.above[k] = source.above[k]
    for k in range(source.lowest.shape[0]):
        target.lowest[k] = source.lowest[k]


def random(turn: Work) -> int:
    """Return the next pseudo-random number, of 31 bits."""
    turn.at.random = (turn.at.random * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
    return turn.at.random >> 32


def tolerance(turn: Work) -> int:
    """Return a random increase of the arena to accept: geometrically distributed, cooling linearly to 0."""
    number, doublings = random(turn) % (1 << 20) + 1, 0
    while number < 1 << 20:
        number *= 2
        doublings += 1
    left = float(turn.at.limit - turn.at.work) / float(turn.at.limit)
    return int(float(turn.at.heat * doublings) * left)


def update_ends(rows: Rows, now: Layout, turn: Work) -> int:
    """Update the ends of marked rows and those that follow from them; sort by ends; return the arena.

    A row with a fixed offset that is pushed above it counts as an arena above the target.
    """
    arena = 0
    for k in range(turn.at.placed):
        row = now.order[k]
        if turn.end_changes[row] != 0:
            turn.end_changes[row] = 0
            low, slot = max(0, rows.fixed[row]), rows.slot[row]
            length = int(rows.last[row] - rows.first[row])
            for place in range(slot, slot + length):
                if now.below[place] >= 0:
                    low = max(low, now.end[now.below[place]])
            turn.at.work += length
            if low + rows.size[row] != now.end[row]:
                now.end[row] = low + rows.size[row]
                for place in range(slot, slot + length):
                    if now.above[place] >= 0:
                        turn.end_changes[now.above[place]] = 1
                turn.at.work += length
        low = now.end[row] - rows.size[row]
        if rows.fixed[row] >= 0 and low > rows.fixed[row]:
            arena = max(arena, turn.at.target + low - rows.fixed[row])
        arena = max(arena, low + rows.extent[row])
    for k in range(1, turn.at.placed):
        row, here = now.order[k], k
        while here > 0 and now.end[now.order[here - 1]] > now.end[row]:
            now.order[here] = now.order[here - 1]
            here -= 1
        now.order[here] = row
        turn.at.work += k - here
    turn.at.work += 2 * turn.at.placed
    return int(arena)


def update_tails(rows: Rows, now: Layout, turn: Work) -> None:
    """Update the tails of marked rows and those that follow from them."""
    for k in range(turn.at.placed - 1, -1, -1):
        row = now.order[k]
        if turn.tail_changes[row] != 0:
            turn.tail_changes[row] = 0
            slot, above = rows.slot[row], 0
            length = int(rows.last[row] - rows.first[row])
            for place in range(slot, slot + length):
                if now.above[place] >= 0:
                    above = max(above, now.tail[now.above[place]])
            turn.at.work += length
            tail = longest(rows, row, int(above))
            if rows.fixed[row] >= 0:
                tail = max(tail, turn.at.target - rows.fixed[row])
            if tail != now.tail[row]:
                now.tail[row] = tail
                for place in range(slot, slot + length):
                    if now.below[place] >= 0:
                        turn.tail_changes[now.below[place]] = 1
                turn.at.work += length
    turn.at.work += turn.at.placed


def longest(rows: Rows, row: int, above: int) -> int:
    """Return the longest path from a row with a path above it, or without one (0)."""
    return int(max(rows.extent[row], rows.size[row] + above) if above > 0 else rows.extent[row])


def link(rows: Rows, now: Layout, turn: Work, row: int, place: int) -> None:
    """Link a row above the rows before a place in the order, and note whose paths change."""
    first, last, base = rows.first[row], rows.last[row], rows.slot[row] - rows.first[row]
    for section in range(first, last):
        now.below[base + section] = -1
    left = last - first
    for k in range(place - 1, -1, -1):
        if left == 0:
            break
        other = now.order[k]
        for section in range(max(first, rows.first[other]), min(last, rows.last[other])):
            if now.below[base + section] < 0:
                now.below[base + section] = other
                left -= 1
            turn.at.work += 1
    for section in range(first, last):
        low = now.below[base + section]
        high = now.lowest[section]
        if low >= 0:
            under = rows.slot[low] - rows.first[low] + section
            high = now.above[under]
            now.above[under] = row
            turn.tail_changes[low] = 1
        else:
            now.lowest[section] = row
        now.above[base + section] = high
        if high >= 0:
            now.below[rows.slot[high] - rows.first[high] + section] = row
            turn.end_changes[high] = 1
    turn.end_changes[row] = 1
    turn.tail_changes[row] = 1
    turn.at.work += 2 * (last - first)


def unlink(rows: Rows, now: Layout, turn: Work, row: int) -> None:
    """Join the neighbours of a row, and note that their paths change."""
    first, base = rows.first[row], rows.slot[row] - rows.first[row]
    for section in range(first, rows.last[row]):
        low, high = now.below[base + section], now.above[base + section]
        if low >= 0:
            now.above[rows.slot[low] - rows.first[low] + section] = high
            turn.tail_changes[low] = 1
        else:
            now.lowest[section] = high
        if high >= 0:
            now.below[rows.slot[high] - rows.first[high] + section] = low
            turn.end_changes[high] = 1
    turn.at.work += 2 * (rows.last[row] - first)


def take_out(rows: Rows, now: Layout, turn: Work) -> int:
    """Choose rows that live near each other, remove them from the order, and return their number."""
    count, seed = rows.size.shape[0], choose_seed(rows, now, turn)
    most, kind = 1 + random(turn) % rows.most, random(turn) % KINDS
    low = rows.first[seed] + random(turn) % (rows.last[seed] - rows.first[seed])
    width = 1 + random(turn) % rows.width
    low -= width // 2
    reach = turn.at.target >> (1 + random(turn) % 4) if kind == NEAR else NEVER
    slack = (turn.at.target - rows.bound) * (random(turn) % 100) // 100
    least = turn.at.target - slack if kind == TIGHT else -NEVER
    turn.out[0] = seed
    turn.is_out[seed] = 1
    out, seen = 1, 1
    for row in range(count):
        if row == seed or rows.fixed[row] >= 0 or rows.first[row] >= low + width or low >= rows.last[row]:
            continue
        if abs(now.end[row] - now.end[seed]) >= reach or path(rows, now, row) < least:
            continue
        seen += 1
        place = out if out < most else random(turn) % seen
        if place == out:
            out += 1
        elif place == 0 or place >= most:  # the seed stays
            continue
        else:
            turn.is_out[turn.out[place]] = 0
        turn.out[place] = row
        turn.is_out[row] = 1
    kept = 0
    for k in range(count):
        row = now.order[k]
        if turn.is_out[row] == 0:
            now.order[kept] = row
            kept += 1
    for k in range(out):
        turn.is_out[turn.out[k]] = 0
        unlink(rows, now, turn, turn.out[k])
    turn.at.placed = kept
    turn.at.work += 4 * count + 20 * out
    return out


def path(rows: Rows, now: Layout, row: int) -> int:
    """Return the longest path through a row."""
    return int(now.end[row] - rows.size[row] + now.tail[row])


def choose_seed(rows: Rows, now: Layout, turn: Work) -> int:
    """Return a random row, which mostly lies on a longest path; not a fixed one."""
    critical = random(turn) % 10 < CRITICAL
    seed, seen = -1, 0
    for tries in range(2):
        for row in range(rows.size.shape[0]):
            if rows.fixed[row] < 0 and (tries > 0 or not critical or path(rows, now, row) > turn.at.target):
                seen += 1
                if random(turn) % seen == 0:
                    seed = row
        turn.at.work += 3 * rows.size.shape[0]
        if seed >= 0:
            break
    return int(seed)


def arrange(rows: Rows, turn: Work, out: int) -> None:
    """Order the rows to insert: at random, by area, or by size."""
    kind = random(turn) % 3
    for k in range(out - 1, 0, -1):
        other = random(turn) % (k + 1)
        row = turn.out[k]
        turn.out[k] = turn.out[other]
        turn.out[other] = row
    if kind == 0:
        return
    for k in range(1, out):
        row, here = turn.out[k], k
        while here > 0 and rank(rows, turn.out[here - 1], kind) < rank(rows, row, kind):
            turn.out[here] = turn.out[here - 1]
            here -= 1
        turn.out[here] = row


def rank(rows: Rows, row: int, kind: int) -> float:
    """Return the area of a row (1), or its size (2)."""
    return float(rows.size[row]) * float(rows.last[row] - rows.first[row] if kind == 1 else 1)


def insert(rows: Rows, now: Layout, turn: Work, row: int) -> None:
    """Insert a row where the longest path through it is shortest; at random among places with short ones.

    The rows below a place are those that end before the others. For each longest path from below, no other choice of
    rows below has a shorter path above. The search over places is therefore complete.
    """
    first, last, placed = rows.first[row], rows.last[row], turn.at.placed
    enough = rows.bound + (turn.at.target - rows.bound) * ENOUGH // 10
    up = 0
    for k in range(placed - 1, -1, -1):
        other = now.order[k]
        turn.path[k + 1] = up
        if rows.first[other] < last and first < rows.last[other]:
            up = max(up, now.tail[other])
    turn.path[0] = up
    best, place, equal, down, is_new = NEVER, -1, 0, 0, True
    for k in range(placed + 1):
        if is_new and (place < 0 or random(turn) % SKIP > 0):
            through = max(down + longest(rows, row, turn.path[k]), enough)
            if through < best:
                best, place, equal = through, k, 1
            elif through == best:
                equal += 1
                if random(turn) % equal == 0:
                    place = k
        is_new = False
        if k < placed:
            other = now.order[k]
            if rows.first[other] < last and first < rows.last[other]:
                down = max(down, now.end[other])
                is_new = True
    turn.at.work += 3 * placed
    link(rows, now, turn, row, place)
    for k in range(placed, place, -1):
        now.order[k] = now.order[k - 1]
    now.order[place] = row
    turn.at.placed += 1


PREPARE, RUN = Kernel(prepare), Kernel(run)
