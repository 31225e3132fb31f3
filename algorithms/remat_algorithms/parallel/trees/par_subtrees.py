"""`par-subtrees`: one subtree on each processor, then the rest.

After Marchal, Sinnen and Vivien 2013, "Scheduling tree-shaped task graphs to minimize memory and makespan"
(ParSubtrees, SplitSubtrees and ParSubtreesOptim).
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Sequence

from pydantic import Field

from remat.plugin import Context, Number, Options, Problem, Proposal
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree
from remat_algorithms.parallel.trees.timed_steps import emit, follow, processors_of


class SubtreesOptions(Options):
    """Options of `par-subtrees`."""

    spread: bool = Field(
        default=False,
        description="distribute all subtrees of the splitting over the P processors, longest first, in place of only "
        "the P largest (ParSubtreesOptim); shortens the schedule and raises its peak",
    )


def solve(problem: Problem, options: SubtreesOptions, context: Context) -> Proposal:
    """Split the tree into subtrees, run the P largest at the same time, then everything else one by one.

    Each processor runs its subtree in the best post-order, which also orders the rest. Without node parallelism, peak
    and makespan are within a factor P of the optimum: P subtrees need at most P times the sequential peak, and P
    processors are at most P times as fast as one. The rest runs on as many processors as each node can use. O(n (log n
    + P)).

    Takes instances of kind `tree`. Claims nothing. Under a budget, steps wait until their bytes fit; if they never do,
    no schedule is returned.
    """
    tree = ParallelTree.of(problem)
    count = len(processors_of(problem))
    roots = split_subtrees(tree, count)
    processor_of = _assigned(tree, roots, count, spread=options.spread)
    mine = [-1] * len(tree)
    for root, processor in processor_of.items():
        mine[root] = processor
    for node in reversed(tree.postorder):
        above = tree.parent[node]
        if mine[node] < 0 and above >= 0:
            mine[node] = mine[above]
    first = [node for node in tree.postorder if mine[node] >= 0]
    rest = [node for node in tree.postorder if mine[node] < 0]
    on: list[Sequence[int]] = [
        range(tree.width(node, count)) if processor < 0 else (processor,) for node, processor in enumerate(mine)
    ]
    gates = [0 if processor < 0 and processor_of else -1 for processor in mine]
    plan = follow(tree, first + rest, on, count, gates, [list(processor_of)])
    return Proposal(steps=emit(problem, tree, plan))


def split_subtrees(tree: ParallelTree, processors: int) -> list[int]:
    """Return the roots of the subtrees of the best splitting, by non-increasing work (SplitSubtrees).

    Starting with the whole tree, each step replaces the subtree with the most work by those of its children; its root
    joins the sequential rest. The steps end when the subtree with the most work is a leaf. The cost of a splitting is

        W_1 + sum of w over the removed roots + sum of W_j for j > P,

    the time to run the P largest subtrees at the same time and all the rest on one processor. The first splitting of
    minimum cost is used.
    """
    work, time, children = tree.work, tree.time, tree.children
    # The P largest subtrees in ascending order, and all others as a heap, largest first.
    largest: list[tuple[Number, int]] = [(work[tree.root], -tree.root)]
    others: list[tuple[Number, int]] = []
    removed: list[int] = []
    surplus: Number = 0  # total work of the others
    sequential: Number = 0  # total time of the removed roots
    best_cost, best_count = work[tree.root], 0
    while children[-largest[-1][1]]:
        root = -largest.pop()[1]
        removed.append(root)
        sequential += time[root]
        for child in children[root]:
            entry = (work[child], -child)
            if len(largest) == processors:
                if entry > largest[0]:
                    entry, largest[0] = largest[0], entry
                    largest.sort()
                surplus += entry[0]
                heapq.heappush(others, (-entry[0], -entry[1]))
            else:
                insort(largest, entry)
        while len(largest) < processors and others:
            negative, node = heapq.heappop(others)
            surplus += negative
            insort(largest, (-negative, -node))
        cost = largest[-1][0] + sequential + surplus
        if cost < best_cost:
            best_cost, best_count = cost, len(removed)
    if not best_count:
        return [tree.root]
    cut = set(removed[:best_count])
    roots = [child for node in removed[:best_count] for child in children[node] if child not in cut]
    return sorted(roots, key=lambda node: (-work[node], node))


def _assigned(tree: ParallelTree, roots: list[int], processors: int, *, spread: bool) -> dict[int, int]:
    """Return the processor of each subtree that runs in the parallel phase."""
    if not spread:
        return {root: processor for processor, root in enumerate(roots[:processors])}
    loads: list[tuple[Number, int]] = [(0, processor) for processor in range(processors)]
    assigned = {}
    for root in roots:
        load, processor = loads[0]
        assigned[root] = processor
        heapq.heapreplace(loads, (load + tree.work[root], processor))
    return assigned
