"""Best fit among the placed buffers, with the addresses in use stored in a tree over time.

Each node of the tree represents an interval of time. It has lists of address ranges in ascending order, in which ranges
that touch are merged. From the root down to the *cut*, the list `SOME` of a node holds all addresses in use at some
time within the interval. For nodes of the cut, the list `WHOLE` holds the addresses in use during the whole interval.
Below the cut, a buffer is recorded at the nodes that compose its lifetime: in their `WHOLE`, and in `SOME` of these
nodes and of their ancestors up to the cut.

The addresses in use during a lifetime are the union of two kinds of lists. The first is `SOME` of the nodes that
compose the lifetime. The second is `WHOLE` of the ancestors of its first and last leaf, up to the cut.

Dense layouts have few gaps, so complete lists are short. A list below the cut has few entries, because each of them
begins or ends within a node of the cut. A deeper cut changes more lists per insertion, and merges fewer ranges per
query.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from remat.plugin import IntArray
from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.kit.compile.records import cells

END = 1 << 62
"""The address at which the last gap ends."""

WHOLE, SOME = 0, 1
PLACE, ROOM, COUNT = 0, 1, 2


@cells
class State(ctypes.Structure):
    """Number of placed groups, entries in use, whether the lists ran full, the lengths of two unions, and the work."""

    placed: int
    used: int
    full: int
    mine: int
    all: int
    work: int


class Rows(NamedTuple):
    """Buffers by group.

    Attributes
    ----------
    order : (groups,) int64
        The order in which groups are placed.
    begin : (groups + 1,) int64
        Rows of each group.
    first, last : (rows,) int64
        Leaves of the tree, half-open.
    size, shift : (rows,) int64
    fixed : (groups,) int64
        The offset of a group, or -1.
    reserved : (ranges, 2) int64
    leaves, cut, unit : int
        `cut` is both the first node of the cut and the number of its nodes; `unit` divides every offset.
    """

    order: IntArray
    begin: IntArray
    first: IntArray
    last: IntArray
    size: IntArray
    shift: IntArray
    fixed: IntArray
    reserved: IntArray
    leaves: int
    cut: int
    unit: int


class Tree(NamedTuple):
    """The lists, and the workspace to merge them.

    Attributes
    ----------
    list : (2, nodes, 3) int64
        For each list: its begin in `low` and `high`, its capacity there, and its number of ranges.
    low, high : (room,) int64
        The ranges.
    mine, spare, all : (2, room) int64
        Unions of ranges: in use during a row's lifetime; under construction; offsets that the group must not have.
    offset : (groups,) int64
        -1: not placed yet.
    """

    list: IntArray
    low: IntArray
    high: IntArray
    mine: IntArray
    spare: IntArray
    all: IntArray
    offset: IntArray
    state: State


def fit(rows: Rows, tree: Tree) -> bool:
    """Place the remaining groups; return False if the arrays of ranges are full, to continue with larger ones."""
    while tree.state.placed < rows.order.shape[0]:
        group = rows.order[tree.state.placed]
        # If the arrays ran full during this group, its offset is already set. Adding its ranges twice changes nothing.
        if tree.offset[group] < 0:
            tree.offset[group] = rows.fixed[group] if rows.fixed[group] >= 0 else best_gap(rows, tree, group)
        for row in range(rows.begin[group], rows.begin[group + 1]):
            low = tree.offset[group] + rows.shift[row]
            occupy(rows, tree, row, low, low + rows.size[row])
        if tree.state.full != 0:
            tree.state.full = 0
            return False
        tree.state.placed += 1
    return True


def best_gap(rows: Rows, tree: Tree, group: int) -> int:
    """Return the offset in the smallest gap that holds a group; of equal gaps, in the lowest."""
    tree.state.all = 0
    for row in range(rows.begin[group], rows.begin[group + 1]):
        in_use(rows, tree, row)
        forbid(rows, tree, row)
    best, smallest, low = -1, END, 0
    for k in range(tree.state.all + 1):
        high = tree.all[0, k] if k < tree.state.all else END
        at = -(-low // rows.unit) * rows.unit
        if at < high and (best < 0 or high - low < smallest):
            best, smallest = at, high - low
        if k < tree.state.all:
            low = max(low, tree.all[1, k])
    return best


def in_use(rows: Rows, tree: Tree, row: int) -> None:
    """Collect in `mine` the addresses in use during a row's lifetime."""
    tree.state.mine = 0
    for k in range(rows.reserved.shape[0]):
        tree.mine[0, k] = rows.reserved[k, 0]
        tree.mine[1, k] = rows.reserved[k, 1]
        tree.state.mine += 1
    left, right = rows.leaves + rows.first[row], rows.leaves + rows.last[row]
    above_left, above_right = left, right - 1
    while left < right:
        if left & 1:
            add_list(tree, SOME, left)
            left += 1
        if right & 1:
            right -= 1
            add_list(tree, SOME, right)
        left >>= 1
        right >>= 1
    while above_left >= rows.cut:
        add_list(tree, WHOLE, above_left)
        if above_right != above_left:
            add_list(tree, WHOLE, above_right)
        above_left >>= 1
        above_right >>= 1


def add_list(tree: Tree, kind: int, node: int) -> None:
    """Merge a list into `mine`."""
    other = tree.list[kind, node, PLACE]
    end = other + tree.list[kind, node, COUNT]
    if other == end:
        return
    count, k, made = tree.state.mine, 0, 0
    low, high = -1, -1
    while k < count or other < end:
        if other == end or (k < count and tree.mine[0, k] <= tree.low[other]):
            next_low, next_high = tree.mine[0, k], tree.mine[1, k]
            k += 1
        else:
            next_low, next_high = tree.low[other], tree.high[other]
            other += 1
        if high >= 0 and next_low <= high:
            high = max(high, next_high)
            continue
        if high >= 0:
            tree.spare[0, made] = low
            tree.spare[1, made] = high
            made += 1
        low, high = next_low, next_high
    tree.spare[0, made] = low
    tree.spare[1, made] = high
    made += 1
    for j in range(made):
        tree.mine[0, j] = tree.spare[0, j]
        tree.mine[1, j] = tree.spare[1, j]
    tree.state.mine = made
    tree.state.work += made


def forbid(rows: Rows, tree: Tree, row: int) -> None:
    """Merge into `all` the offsets at which a group's row would overlap what is in use."""
    size, shift = rows.size[row], rows.shift[row]
    count, old, made = tree.state.mine, tree.state.all, 0
    k, j = 0, 0
    low, high = 0, 0
    begun = False
    while k < count or j < old:
        if j >= old or (k < count and tree.mine[0, k] - shift - size + 1 <= tree.all[0, j]):
            next_low, next_high = tree.mine[0, k] - shift - size + 1, tree.mine[1, k] - shift
            k += 1
        else:
            next_low, next_high = tree.all[0, j], tree.all[1, j]
            j += 1
        if begun and next_low <= high:
            high = max(high, next_high)
            continue
        if begun:
            tree.spare[0, made] = low
            tree.spare[1, made] = high
            made += 1
        low, high = next_low, next_high
        begun = True
    if begun:
        tree.spare[0, made] = low
        tree.spare[1, made] = high
        made += 1
    for i in range(made):
        tree.all[0, i] = tree.spare[0, i]
        tree.all[1, i] = tree.spare[1, i]
    tree.state.all = made


def occupy(rows: Rows, tree: Tree, row: int, low: int, high: int) -> None:
    """Add a row's addresses to the lists."""
    left, right = rows.leaves + rows.first[row], rows.leaves + rows.last[row]
    above_left, above_right, width = left, right - 1, 1
    while left < right and left >= 2 * rows.cut:
        if left & 1:
            insert(tree, WHOLE, left, low, high)
            insert(tree, SOME, left, low, high)
            left += 1
        if right & 1:
            right -= 1
            insert(tree, WHOLE, right, low, high)
            insert(tree, SOME, right, low, high)
        left >>= 1
        right >>= 1
    begin, end = rows.leaves + rows.first[row], rows.leaves + rows.last[row]
    while above_left >= 2 * rows.cut:
        # A node inside the lifetime is covered by the nodes that compose the lifetime.
        if above_left * width < begin or (above_left + 1) * width > end:
            insert(tree, SOME, above_left, low, high)
        reaches_out = above_right * width < begin or (above_right + 1) * width > end
        if above_right != above_left and reaches_out:
            insert(tree, SOME, above_right, low, high)
        above_left >>= 1
        above_right >>= 1
        width <<= 1
    if left >= rows.cut:
        for node in range(left, right):
            insert(tree, WHOLE, node, low, high)
    while above_left > 0:
        for node in range(above_left, above_right + 1):
            insert(tree, SOME, node, low, high)
        above_left >>= 1
        above_right >>= 1


def insert(tree: Tree, kind: int, node: int, low: int, high: int) -> None:
    """Add a range to a list and merge it with the ranges that it touches."""
    begin, count = tree.list[kind, node, PLACE], tree.list[kind, node, COUNT]
    here, end = begin, begin + count
    while here < end:  # the first range whose end is at or after the beginning
        middle = (here + end) >> 1
        if tree.high[middle] < low:
            here = middle + 1
        else:
            end = middle
    end = begin + count
    if here == end or tree.low[here] > high:
        if count == tree.list[kind, node, ROOM]:
            move = here - begin
            begin = enlarge(tree, kind, node)
            if begin < 0:
                return
            here, end = begin + move, begin + count
        for k in range(end, here, -1):
            tree.low[k] = tree.low[k - 1]
            tree.high[k] = tree.high[k - 1]
        tree.low[here] = low
        tree.high[here] = high
        tree.list[kind, node, COUNT] = count + 1
        tree.state.work += 1 + ((end - here) >> 3)
        return
    tree.low[here] = min(low, tree.low[here])
    top = max(high, tree.high[here])
    after = here + 1
    while after < end and tree.low[after] <= top:
        top = max(top, tree.high[after])
        after += 1
    tree.high[here] = top
    gone = after - here - 1
    if gone > 0:
        for k in range(after, end):
            tree.low[k - gone] = tree.low[k]
            tree.high[k - gone] = tree.high[k]
        tree.list[kind, node, COUNT] = count - gone
        tree.state.work += (end - here) >> 3
    tree.state.work += 1


def enlarge(tree: Tree, kind: int, node: int) -> int:
    """Move a list to a place with twice the capacity; return its new begin, or -1 if no such place is left."""
    old, count = tree.list[kind, node, PLACE], tree.list[kind, node, COUNT]
    room = max(2 * tree.list[kind, node, ROOM], 4)
    new = tree.state.used
    if new + room > tree.low.shape[0]:
        tree.state.full = 1
        return -1
    tree.state.used += room
    for k in range(count):
        tree.low[new + k] = tree.low[old + k]
        tree.high[new + k] = tree.high[old + k]
    tree.list[kind, node, PLACE] = new
    tree.list[kind, node, ROOM] = room
    return new


FIT = Kernel(fit, long_loops=True)
