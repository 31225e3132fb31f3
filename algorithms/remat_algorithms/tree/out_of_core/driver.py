"""Common driver of the out-of-core algorithms: checks of both capacities, evictions, proposals and notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remat.plugin import ALL_SCHEDULES, IntArray, LeastBudget, Problem, Proposal, format_size, run_in_order
from remat_algorithms.tree.out_of_core.eviction_rules import Policy
from remat_algorithms.tree.out_of_core.evictions import EvictionPlan, plan_evictions, use_of_values
from remat_algorithms.tree.out_of_core.intree import InTree
from remat_algorithms.tree.out_of_core.model import Store
from remat_algorithms.tree.out_of_core.traversal import least_peak_traversal

NO_DISK = (
    "this machine has no second memory to evict to: add one, with links in both directions, to the instance or to a "
    "machine file (docs/how-to/out-of-core.md)"
)

MakePolicy = Callable[[list[int], list[int]], Policy]
"""Creates a policy from the sizes of all values and the positions at which they are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A traversal for each capacity, an eviction rule, and the class of schedules that they represent.

    Attributes
    ----------
    order : callable
        Returns a traversal of the in-tree for a capacity. The capacity is at least the largest requirement of a node;
        None means unbounded.
    policy : callable
    scope : str
        Class of schedules for which infeasibility is claimed.
    least_of : str
        Class of schedules over which the I/O volume is minimum; empty if unknown.
    """

    order: Callable[[int | None], IntArray]
    policy: MakePolicy
    scope: str
    least_of: str = ""


def solve_with(problem: Problem, tree: InTree, store: Store, method: Method) -> Proposal:
    """Apply a method to an instance.

    Returns
    -------
    Proposal
        Without evictions if the traversal fits. Infeasible if a task alone does not fit, if no disk exists, or if all
        memories together hold less than every schedule needs. Without a schedule if only this plan exceeds the disk.
    """
    capacity = store.capacity
    if capacity is not None and capacity < int(tree.requirement.max()):
        return _too_small(problem, tree, store, method)
    order = method.order(capacity)
    peak, _ = tree.peak_of(order)
    if capacity is None or peak <= capacity:
        return Proposal(
            steps=run_in_order(problem.graph, problem.machine, tree.tasks(order)),
            makespan=problem.no_recompute_time,
            peak=peak + store.static,
            notes=("I/O volume 0: everything fits in the memory",),
        )
    if store.disk is None:
        peak, node = tree.peak_of(method.order(None))
        return Proposal(
            infeasible_within=f"{method.scope}, without a disk",
            least=LeastBudget(peak + store.static, node, sufficient=True),
            notes=(NO_DISK,),
        )
    plan = _plan(problem, tree, store, method, order, capacity)
    if store.disk_capacity is not None and plan.disk_peak > store.disk_capacity:
        return _full_disk(problem, tree, store, plan)
    return Proposal(
        steps=plan.steps,
        makespan=problem.no_recompute_time if store.free_links else None,
        notes=(_volume(problem, store, method, plan),),
    )


def _volume(problem: Problem, store: Store, method: Method, plan: EvictionPlan) -> str:
    assert store.disk is not None
    name = problem.machine.memories[store.disk].name
    unit = "" if problem.units.memory == "unit" else " B"
    moves = f"{plan.evictions:,} eviction{'' if plan.evictions == 1 else 's'}"
    least = f", the least of {method.least_of}" if method.least_of else ""
    return f"I/O volume {plan.written:,}{unit}{least}: written to {name} in {moves}, and read back"


def _plan(problem: Problem, tree: InTree, store: Store, method: Method, order: IntArray, capacity: int) -> EvictionPlan:
    graph, tasks = problem.graph, tree.tasks(order)
    assert store.disk is not None
    policy = method.policy(graph.size.tolist(), use_of_values(graph, tasks))
    return plan_evictions(graph, tasks, policy, capacity=capacity, disk=store.disk)


def _too_small(problem: Problem, tree: InTree, store: Store, method: Method) -> Proposal:
    """Propose infeasibility because a task alone does not fit; check whether its requirement suffices as budget."""
    task = int(np.argmax(tree.requirement))
    least = int(tree.requirement[task])
    order = method.order(least)
    peak, _ = tree.peak_of(order)
    sufficient = True
    notes: tuple[str, ...] = ()
    if peak > least:
        if store.disk is None:
            # Without a disk, the budget must cover the whole traversal.
            least, task = tree.peak_of(method.order(None))
            notes = (NO_DISK,)
        elif store.disk_capacity is not None:
            sufficient = _plan(problem, tree, store, method, order, least).disk_peak <= store.disk_capacity
    named = LeastBudget(least + store.static, task, sufficient)
    return Proposal(infeasible_within=method.scope, least=named, notes=notes)


def _full_disk(problem: Problem, tree: InTree, store: Store, plan: EvictionPlan) -> Proposal:
    """Propose no schedule because the plan exceeds the disk; prove infeasibility if every schedule would.

    At every instant, each byte of the values that a schedule holds is in some memory. No schedule therefore holds less
    than Liu's traversal at its peak (proof in `remat_algorithms.tree.tree_arrays.propose`).
    """
    assert store.disk is not None
    assert store.disk_capacity is not None
    assert store.capacity is not None
    machine, units = problem.machine, problem.units
    name, need = machine.memories[store.disk].name, format_size(plan.disk_peak, units)
    peak, _ = tree.peak_of(least_peak_traversal(problem))
    others = [memory.capacity for memory in machine.memories[1:]]
    room = sum(size for size in others if size is not None)
    if None not in others and peak > store.capacity + room:
        total = format_size(peak + store.static, units)
        note = f"every schedule holds {total} at some time, more than all memories together"
        notes = note, f"this plan needs {need} of {name}"
        bound = peak - store.capacity - room + store.disk_capacity
        enough = plan.disk_peak <= bound
        proved = LeastBudget(bound, plan.disk_task if enough else None, sufficient=enough, memory=store.disk)
        return Proposal(infeasible_within=ALL_SCHEDULES, least=proved, notes=notes)
    least = LeastBudget(plan.disk_peak, plan.disk_task, sufficient=True, memory=store.disk)
    have = format_size(store.disk_capacity, units)
    note = f"this plan takes {need} of {name}, which holds {have}; another traversal or rule may take less"
    return Proposal(least=least, notes=(note,))
