"""Sequential traversal whose peak is the minimum budget of the memory-bounded tree algorithms."""

from __future__ import annotations

from remat.plugin import ALL_SCHEDULES, LeastBudget, Problem, Proposal
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree, Traversal
from remat_algorithms.parallel.trees.timed_steps import room
from remat_algorithms.tree.tree_arrays import TRAVERSALS


def fitting(problem: Problem, tree: ParallelTree) -> Traversal | Proposal:
    """Return the best post-order if it fits the budget, else the traversal of minimum peak, else a proposal.

    The proposal states infeasibility. The traversal of minimum peak needs no more memory than any schedule on any
    number of processors (proof in `remat_algorithms.tree.tree_arrays.propose`). On a machine with one memory, the
    statement is therefore proved for all schedules.
    """
    budget = room(problem)
    traversal = tree.best_postorder()
    if budget is None or traversal.peak <= budget:
        return traversal
    traversal = tree.optimal_traversal()
    if traversal.peak <= budget:
        return traversal
    machine = problem.machine
    own = machine.processors[0].memory
    # Without static memory, `room` is the budget. The difference is therefore the static memory (or 0).
    assert problem.budget is not None
    peak = traversal.peak + problem.budget - budget
    return Proposal(
        infeasible_within=ALL_SCHEDULES if len(machine.memories) == 1 else TRAVERSALS,
        least=LeastBudget(peak, traversal.node, sufficient=True, memory=own),
    )
