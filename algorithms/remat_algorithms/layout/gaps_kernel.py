"""Best fit among the buffers that are placed already: addresses in use, kept in a tree over time.

Each node of the tree stands for an interval of time and has lists of address ranges, by ascending address, in which
ranges that touch are one. From the root down to the *cut*, `SOME` of a node has all that is in use at some time within
it. Of the nodes of the cut, `WHOLE` has what is in use all the time. Below it a buffer is noted where nodes make up its
lifetime: there in `WHOLE`, there and in the nodes above, up to the cut, in `SOME`.

What is in use during a lifetime is then the union of `SOME` of the nodes that make it up, and of `WHOLE` of those above
its first and its last leaf, up to the cut. Dense layouts have few gaps, so that complete lists are short; what is noted
in a list below the cut is little, as it begins or ends within a node of the cut. The deeper the cut, the more lists an
insertion changes, and the fewer ranges a question merges.
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
    """Groups that are placed, room in use, whether there was too little, the lengths of two unions, and the work."""

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
        In which groups are placed.
    begin : (groups + 1,) int64
        Rows of each group.
    first, last : (rows,) int64
        Leaves of the tree, half-open.
    size, shift : (rows,) int64
    fixed : (groups,) int64
        The offset of a group, or -1.
    reserved : (ranges, 2) int64
    leaves, cut, unit : int
        `cut` is the first node of the cut, which has as many; `unit` divides every offset.
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
    """The lists, and room to merge them.

    Attributes
    ----------
    list : (2, nodes, 3) int64
        Where each list begins in `low` and `high`, what room it has there, and how many ranges.
    low, high : (room,) int64
        The ranges.
    mine, spare, all : (2, room) int64
        Unions of ranges: in use during a row's life; being built; offsets that no group may have.
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
    """Place the groups that are left; False where there is too little room for ranges, to go on with more."""
    while tree.state.placed < rows.order.shape[0]:
        group = rows.order[tree.state.placed]
        # Where room was lacking before, its offset is known, and adding ranges again changes nothing.
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
    """Return the offset in the smallest gap that holds a group; of equal ones, in the lowest."""
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
    """Collect what is in use during a row's life, in `mine`."""
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
        # Where a node lies within the lifetime, it is noted at those that make this up.
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
    """Add a range to a list; what it touches becomes one with it."""
    begin, count = tree.list[kind, node, PLACE], tree.list[kind, node, COUNT]
    here, end = begin, begin + count
    while here < end:  # the first range that ends at its beginning or later
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
    """Move a list to where it has twice the room; return where it begins then, or -1 if there is no such place."""
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
