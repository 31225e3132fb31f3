"""Local search over the order in which best-fit places buffers.

In half of the changes a buffer near the top of the arena comes earlier, in the others any buffer goes anywhere. A
change is kept if the arena is no larger than before, or than a fixed number of changes ago (late acceptance: Burke and
Bykov 2017). This finds small arenas where there are few buffers at a time, and the search over floors has too many
choices.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from remat.plugin import Buffers, Context, IntArray, arena_of
from remat_algorithms.layout.best_fit import ORDERS, Gaps

TURN_WORK = 500
"""Units of work of a change, for each buffer."""

LATE, NEAR_TOP = 50, 0.98
"""History length of late acceptance, and the share of the arena that counts as its top."""


def reordered(buffers: Buffers, context: Context, work: int) -> Iterator[IntArray]:
    """Yield layouts, each with a smaller arena than the one before, from the best greedy order on.

    Parameters
    ----------
    work : int
        Units of work, of about a nanosecond.
    """
    gaps, draw = Gaps(buffers), random.Random(context.seed)
    starts = [gaps.order(order) for order in ORDERS]
    offsets = [gaps.place_in(order) for order in starts]
    arenas = [arena_of(buffers, offset) for offset in offsets]
    first = int(np.argmin(arenas))
    order, offset, arena = starts[first].tolist(), offsets[first], arenas[first]
    smallest, earlier = arena, [arena] * LATE
    for turn in range(work // (TURN_WORK * max(len(buffers), 1)) if len(order) > 1 else 0):
        if context.stopped:
            return
        changed = _changed(order, gaps.group[offset + buffers.size >= NEAR_TOP * arena], draw)
        placed = gaps.place_in(np.array(changed, dtype=np.int64))
        reached = arena_of(buffers, placed)
        if reached <= max(arena, earlier[turn % LATE]):
            order, offset, arena = changed, placed, reached
            if arena < smallest:
                smallest = arena
                yield offset
        earlier[turn % LATE] = arena


def _changed(order: list[int], top: IntArray, draw: random.Random) -> list[int]:
    """Return an order in which one group has moved."""
    changed = list(order)
    if draw.random() < 0.5:
        place = changed.index(int(top[draw.randrange(len(top))]))
        target = draw.randrange(place + 1)
    else:
        place, target = draw.randrange(len(order)), draw.randrange(len(order))
    changed.insert(target, changed.pop(place))
    return changed
