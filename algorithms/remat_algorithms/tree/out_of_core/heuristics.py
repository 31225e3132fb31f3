"""`min-io-lsnf`, `min-io-first-fit`, `min-io-best-fit`, `min-io-best-k`: eviction rules on a given traversal.

After Jacquelin, Marchal, Robert and Uçar 2011, "On optimal tree traversals for sparse matrix factorization". Choosing
whole values to write with the minimum I/O volume is NP-hard even for a given traversal; these four rules choose
greedily. `remat_algorithms.tree.out_of_core.eviction_rules` implements the rules.
"""

from __future__ import annotations

from pydantic import Field

from remat.plugin import Context, Problem, Proposal
from remat_algorithms.tree.out_of_core.driver import MakePolicy, Method, solve_with
from remat_algorithms.tree.out_of_core.eviction_rules import (
    BestCombination,
    BestFit,
    FirstFit,
    FurthestInFuture,
    LastScheduledFirst,
)
from remat_algorithms.tree.out_of_core.intree import InTree
from remat_algorithms.tree.out_of_core.model import DiskOptions, Store
from remat_algorithms.tree.out_of_core.traversal import Traversal, traverse


class TraversalOptions(DiskOptions):
    """Options of the eviction heuristics."""

    traversal: Traversal = Field(
        "liu",
        description="order of the tasks: liu (minimum peak), liu-postorder (minimum peak among post-orders), "
        "postorder (children as listed), or listed (nodes as listed)",
    )


class LastScheduledOptions(TraversalOptions):
    """Options of `min-io-lsnf`."""

    divisible: bool = Field(
        False,
        description="evict parts of values, only as many bytes as needed; minimizes the I/O volume of the traversal",
    )


class BestCombinationOptions(TraversalOptions):
    """Options of `min-io-best-k`."""

    k: int = Field(
        5, ge=1, le=12, description="number of values to combine, taken from those used last; time grows with 2^k"
    )


def solve_lsnf(problem: Problem, options: LastScheduledOptions, context: Context) -> Proposal:
    """Evict whole values, last used first; with `divisible`, no more bytes than needed. O(n log n)."""
    return _solve(problem, options, FurthestInFuture if options.divisible else LastScheduledFirst)


def solve_first_fit(problem: Problem, options: TraversalOptions, context: Context) -> Proposal:
    """Evict the first value that is large enough alone, starting with the one used last. O(n log n)."""
    return _solve(problem, options, FirstFit)


def solve_best_fit(problem: Problem, options: TraversalOptions, context: Context) -> Proposal:
    """Evict the value closest in size to the need. O(n log n)."""
    return _solve(problem, options, BestFit)


def solve_best_k(problem: Problem, options: BestCombinationOptions, context: Context) -> Proposal:
    """Evict the best combination of the k values used last. O(n (log n + 2^k))."""

    def policy(size: list[int], use: list[int]) -> BestCombination:
        return BestCombination(size, use, options.k)

    return _solve(problem, options, policy)


def _solve(problem: Problem, options: TraversalOptions, policy: MakePolicy) -> Proposal:
    """Apply a rule to the chosen traversal, which does not depend on the budget.

    Returns
    -------
    Proposal
        Its note states the I/O volume. Infeasible if a task alone does not fit. Without a disk, infeasible for this
        traversal if the traversal does not fit.
    """
    tree, store = InTree.of(problem), Store.of(problem, options)
    order = traverse(problem, tree, options.traversal)
    method = Method(
        order=lambda _: order,
        policy=policy,
        scope=f"the {options.traversal} traversal",
        least_of="this traversal" if policy is FurthestInFuture else "",
    )
    return solve_with(problem, tree, store, method)
