"""Division of a node's processors and memory among the subtrees of its children.

Of q processors, the share of a child is q W_i / W, where W_i is the work of its subtree and W that of all these
children. Shares are rounded to whole processors as follows:

- A child with a share of at least 1 gets exclusive processors.
- The others, with total share s, are packed on round(s) single processors, longest first, each onto the least loaded
  one. If round(s) is 0, they run on the processors of the child with the most work, before it.
- Each remaining processor goes to the child with exclusive processors that has the most work per processor. This
  minimises the largest such quotient.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from remat_algorithms.parallel.trees.parallel_tree import ParallelTree


@dataclass(frozen=True, slots=True)
class Group:
    """Children that share processors.

    Attributes
    ----------
    children : list of int
        In the order in which each processor runs them.
    first, processors : int
        The processors, numbered from 0 within those of the parent.
    """

    children: list[int]
    first: int
    processors: int


def split(tree: ParallelTree, children: Sequence[int], processors: int) -> list[Group]:
    """Divide processors among children.

    Parameters
    ----------
    tree : ParallelTree
    children : sequence of int
        In the order of the best post-order.
    processors : int
        At least 1.

    Returns
    -------
    list of Group
        On disjoint processors. O(c log c) for c children.
    """
    if len(children) == 1 or processors == 1:
        return [Group(list(children), 0, processors)]
    work = [tree.work[child] for child in children]
    total = sum(work)
    if not total:  # without work, equal shares
        work, total = [1] * len(children), len(children)
    large = [index for index, own in enumerate(work) if processors * own >= total]
    small = [index for index, own in enumerate(work) if processors * own < total]
    # At most `processors` shares can reach 1, but floating-point rounding may exceed that.
    large = sorted(large, key=lambda index: (-work[index], index))[:processors]
    share = processors * sum([work[index] for index in small]) / total
    bins = min(len(small), int(share + 0.5), processors - len(large))
    if small and not large:
        bins = max(bins, 1)
    packed = _packed(small, work, bins)
    if small and not bins:
        members = [[*small, large[0]], *([index] for index in large[1:])]
    else:
        members = [*([index] for index in large), *packed]
    counts = [1] * len(members)
    # If no child is large and children are fewer than processors, every child is alone and may get more processors.
    alone = [(-work[index], group) for group, index in enumerate(large)] or [
        (-work[rows[0]], group) for group, rows in enumerate(packed) if len(rows) == 1
    ]
    heapq.heapify(alone)
    for _ in range(processors - len(members) if alone else 0):
        _, group = alone[0]
        counts[group] += 1
        heapq.heapreplace(alone, (-work[members[group][-1]] / counts[group], group))
    groups = []
    first = 0
    for rows, count in zip(members, counts, strict=True):
        groups.append(Group([children[index] for index in rows], first, count))
        first += count
    return groups


def _packed(rows: list[int], work: Sequence[float], bins: int) -> list[list[int]]:
    """Pack rows into bins, the most work first onto the least loaded bin; each bin keeps the given order."""
    packed: list[list[int]] = [[] for _ in range(bins)]
    if bins:
        loads: list[tuple[float, int]] = [(0, place) for place in range(bins)]
        for index in sorted(rows, key=lambda index: (-work[index], index)):
            load, place = loads[0]
            packed[place].append(index)
            # Of equally loaded bins, the one with the lowest number comes first; empty bins are dropped below.
            heapq.heapreplace(loads, (load + work[index], place))
        for row in packed:
            row.sort()
    return [row for row in packed if row]


def waves(tree: ParallelTree, children: list[int], processors: int, budget: int | None) -> list[list[Group]]:
    """Divide children into waves whose groups fit the budget along with the outputs of earlier waves.

    Parameters
    ----------
    tree : ParallelTree
    children : list of int
        In the order of the best post-order.
    processors : int
    budget : int or None
        At least the post-order peak of the parent's subtree. None means a single wave.
    """
    if not children:
        return []
    everything = split(tree, children, processors)
    if budget is None or len(children) == 1 or sum([least_bytes(tree, group) for group in everything]) <= budget:
        return [everything]
    found = []
    wave: list[int] = []
    held = together = 0
    for child in children:
        if wave and held + together + tree.peak[child] > budget:
            found.append(split(tree, wave, processors))
            held += sum([tree.size[other] for other in wave])
            wave, together = [], 0
        wave.append(child)
        together += tree.peak[child]
    found.append(split(tree, wave, processors))
    return found


def least_bytes(tree: ParallelTree, group: Group) -> int:
    """Return the minimum need of a group: children run sequentially on one processor, and may overlap on several."""
    if group.processors > 1:
        return sum([tree.peak[child] for child in group.children])
    held = highest = 0
    for child in group.children:
        highest = max(highest, held + tree.peak[child])
        held += tree.size[child]
    return highest


def budgets(tree: ParallelTree, wave: list[Group], budget: int | None) -> list[list[int | None]]:
    """Divide a wave's memory: every child gets its need and a part of the rest.

    Only groups of several processors share the rest, in proportion to their children's needs. On one processor, a
    subtree never needs more than its post-order peak.
    """
    if budget is None:
        return [[None] * len(group.children) for group in wave]
    rest = budget - sum([least_bytes(tree, group) for group in wave])
    weight = sum([least_bytes(tree, group) for group in wave if group.processors > 1])
    shared: list[list[int | None]] = []
    for group in wave:
        if group.processors == 1:
            shared.append([None] * len(group.children))
        else:
            needs = [tree.peak[child] for child in group.children]
            shared.append([need + (rest * need // weight if weight else 0) for need in needs])
    return shared
