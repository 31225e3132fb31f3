"""`mem-booking`: deadlock-free list scheduling of a tree that books memory ahead.

After Aupy, Brasseur and Marchal 2017, "Dynamic memory-aware task-tree scheduling". Nodes are *activated* in a
sequential order whose peak is within the budget. An activated node may start when its children have ended. Activating a
node books memory for its subtree. With need_i the bytes while i runs, an activated node books

    R_i = max(need_i, sum of R_j over its children j),   R_j = f_j once j has ended.

Whatever runs in its subtree, it can therefore run in the end. The bookings of a subtree pass to the ancestors that need
them, and only the excess is freed. The sum of R over activated nodes without an activated parent never exceeds the
budget, and bounds the memory in use.

The schedule never deadlocks. The activated nodes are a prefix of the order. If nothing runs and some activated nodes
have not ended, the first of these is ready. If all have ended, exactly the outputs that the sequential order holds
there are booked. The next node then fits, because it does in that order.

The recurrence is the paper's booking (its BookedBySubtree) in closed form. It holds after each step: a child that frees
B bytes lowers R_i by at most R_i - need_i, and only that amount is passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal
from remat_algorithms.parallel.trees.list_scheduling import deepest_first
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree
from remat_algorithms.parallel.trees.priority_list import ChildrenFirst, list_schedule
from remat_algorithms.parallel.trees.sequential_peak import fitting
from remat_algorithms.parallel.trees.timed_steps import emit, processors_of, room


class BookingOptions(Options):
    """Options of `mem-booking`."""

    priority: Literal["critical-path", "activation"] = Field(
        default="critical-path",
        description="which available node starts first: the one with the longest path to the root (critical-path), or "
        "the first in the activation order",
    )


def solve(problem: Problem, options: BookingOptions, context: Context) -> Proposal:
    """Schedule a tree within the budget.

    The activation order is the best post-order if that fits the budget, else the traversal of minimum peak. Without a
    budget, nothing is booked, and this is list scheduling by priority. O(n (h + log n)) for a tree of height h, and O(n
    log n) if the budget suffices to activate all nodes at once.

    Takes instances of kind `tree`. Stays within the budget whenever some schedule does; otherwise infeasible (see
    `fitting`).
    """
    tree = ParallelTree.of(problem)
    traversal = fitting(problem, tree)
    if isinstance(traversal, Proposal):
        return traversal
    budget = room(problem)
    enough = budget is None or everything_booked(tree) <= budget
    release = ChildrenFirst(tree) if enough or budget is None else Booking(tree, traversal.order, budget)
    ranking = deepest_first(tree) if options.priority == "critical-path" else traversal.order
    plan = list_schedule(tree, len(processors_of(problem)), ranking, release)
    if plan is None:
        raise AssertionError("mem-booking got stuck, although its activation order fits the budget")
    return Proposal(steps=emit(problem, tree, plan))


def everything_booked(tree: ParallelTree) -> int:
    """Return the bytes booked when all nodes are activated and none has started."""
    booked = list(tree.need)
    for node in tree.postorder:
        below = sum([booked[child] for child in tree.children[node]])
        booked[node] = max(booked[node], below)
    return booked[tree.root]


class Booking:
    """Activates nodes as memory allows, and releases activated nodes whose children have ended."""

    def __init__(self, tree: ParallelTree, order: Sequence[int], budget: int) -> None:
        self._tree = tree
        self._order = order
        self._budget = budget
        self._next = 0  # position in the order of the next node to activate
        self._active = [False] * len(tree)
        self._missing = [len(below) for below in tree.children]
        self._booked = [0] * len(tree)  # R
        self._below = [0] * len(tree)  # sum of R over the children
        self._total = 0

    def __call__(self, ended: Sequence[int]) -> list[int]:
        """Free the bytes of ended nodes, activate further nodes, and return those that may start."""
        tree = self._tree
        ready = []
        for node in ended:
            self._lower(node, tree.size[node])
            above = tree.parent[node]
            if above >= 0:
                self._missing[above] -= 1
                if self._missing[above] == 0 and self._active[above]:
                    ready.append(above)
        while self._next < len(self._order):
            node = self._order[self._next]
            booked = max(tree.need[node], self._below[node])
            if self._total + booked - self._below[node] > self._budget:
                break
            self._total += booked - self._below[node]
            self._booked[node] = booked
            self._active[node] = True
            self._next += 1
            if tree.parent[node] >= 0:
                self._below[tree.parent[node]] += booked
            if self._missing[node] == 0:
                ready.append(node)
        return ready

    def _lower(self, node: int, booked: int) -> None:
        """Lower the booking of a node, and pass the freed bytes to its activated ancestors as needed."""
        need, parent, below, active = self._tree.need, self._tree.parent, self._below, self._active
        while True:
            freed = self._booked[node] - booked
            if freed == 0:
                return
            self._booked[node] = booked
            node = parent[node]
            if node < 0:
                self._total -= freed
                return
            below[node] -= freed
            if not active[node]:
                self._total -= freed
                return
            booked = max(need[node], below[node])
