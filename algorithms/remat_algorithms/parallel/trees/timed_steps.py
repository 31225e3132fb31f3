"""From planned start times to steps, for trees.

Steps are listed in the order of their planned starts, and placement starts each as early as it can. By
induction along the list no step starts later than planned: at the planned instant of step k all that had
ended in the plan has ended, all that occupies memory is listed earlier, so its processors are free, its
inputs are there and its bytes fit. Hence a plan within the budget is always placed, and never gets longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from remat.plugin import Number, Problem, Ragged, Steps, run_in_order
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree


@dataclass(frozen=True)
class Plan:
    """When and where each node of an in-tree runs.

    Attributes
    ----------
    order : list of int
        Nodes by start; children before their parents also at one instant.
    start, end : list of int or float
    on : list of sequence of int
        Processors of each node, numbered among those that share the memory.
    """

    order: list[int]
    start: list[Number]
    end: list[Number]
    on: list[Sequence[int]]


def processors_of(problem: Problem) -> list[int]:
    """Return the processors that work in the first processor's memory: the P of all algorithms here."""
    machine = problem.machine
    memory = machine.processors[0].memory
    return [index for index, processor in enumerate(machine.processors) if processor.memory == memory]


def room(problem: Problem) -> int | None:
    """Return the budget without static memory (which lies in the working memory)."""
    budget = problem.budget
    in_first = problem.machine.processors[0].memory == 0
    return None if budget is None else budget - (problem.graph.static_memory if in_first else 0)


def emit(problem: Problem, tree: ParallelTree, plan: Plan) -> Steps:
    """Turn a plan into steps without start times.

    An out-tree runs the plan backwards in time: last completed, first started. What began before an instant
    and ends there comes before what takes no time there, as in the order of events of a schedule.
    """
    order = plan.order
    if not tree.inward:
        position = [0] * len(order)
        for index, node in enumerate(order):
            position[node] = index
        start, end = plan.start, plan.end
        order = sorted(order, key=lambda node: (end[node], start[node], position[node]), reverse=True)
    steps = run_in_order(problem.graph, problem.machine, order)
    usable = processors_of(problem)
    if len(usable) == 1:
        return steps
    return replace(steps, on=Ragged.from_lists([[usable[processor] for processor in plan.on[node]] for node in order]))


def follow(
    tree: ParallelTree,
    sequence: Sequence[int],
    on: Sequence[Sequence[int]],
    processors: int,
    gates: Sequence[int] | None = None,
    gate_nodes: Sequence[Sequence[int]] = (),
) -> Plan:
    """Compute the times of a static mapping: each node as soon as its processors and children allow.

    Parameters
    ----------
    tree : ParallelTree
    sequence : sequence of int
        All nodes, children before parents; each processor serves its nodes in this order.
    on : sequence of sequences
        Processors of each node.
    processors : int
    gates : sequence of int, optional
        For each node the gate (-1: none) that must have opened before it starts.
    gate_nodes : sequence of sequences
        For each gate the nodes, all earlier in the sequence, whose ends open it.
    """
    count = len(tree)
    start: list[Number] = [0] * count
    end: list[Number] = [0] * count
    free: list[Number] = [0] * processors
    opened: list[Number | None] = [None] * len(gate_nodes)
    for node in sequence:
        begin: Number = 0
        mine = on[node]
        for processor in mine:
            if free[processor] > begin:
                begin = free[processor]
        for child in tree.children[node]:
            if end[child] > begin:
                begin = end[child]
        if gates is not None and gates[node] >= 0:
            gate = gates[node]
            instant = opened[gate]
            if instant is None:
                instant = opened[gate] = max(end[other] for other in gate_nodes[gate])
            if instant > begin:
                begin = instant
        start[node] = begin
        finish = end[node] = begin + tree.duration(node, len(mine))
        for processor in mine:
            free[processor] = finish
    return Plan(sorted(sequence, key=start.__getitem__), start, end, list(on))
