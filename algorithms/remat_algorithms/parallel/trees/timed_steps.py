"""Conversion of planned start times to steps, for trees.

Steps are listed by planned start, and placement starts each as early as possible. By induction along the list, no step
starts later than planned. At the planned start of step k, all steps that have ended in the plan have ended, and all
values in memory belong to earlier steps. Its processors are therefore free, its inputs are available, and its bytes
fit. Hence a plan within the budget can always be placed, and never becomes longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from remat.plugin import Number, Problem, Ragged, Steps, run_in_order
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree


@dataclass(frozen=True)
class Plan:
    """Start, end and processors of each node of an in-tree.

    Attributes
    ----------
    order : list of int
        Nodes by start, with children before their parents, even at equal times.
    start, end : list of int or float
    on : list of sequence of int
        Processors of each node, numbered among those that share the memory.
    """

    order: list[int]
    start: list[Number]
    end: list[Number]
    on: list[Sequence[int]]


def processors_of(problem: Problem) -> list[int]:
    """Return the processors attached to the first processor's memory: the P of all algorithms here."""
    machine = problem.machine
    memory = machine.processors[0].memory
    return [index for index, processor in enumerate(machine.processors) if processor.memory == memory]


def room(problem: Problem) -> int | None:
    """Return the budget minus the static memory, if that is in the working memory."""
    budget = problem.budget
    in_first = problem.machine.processors[0].memory == 0
    return None if budget is None else budget - (problem.graph.static_memory if in_first else 0)


def emit(problem: Problem, tree: ParallelTree, plan: Plan) -> Steps:
    """Convert a plan to steps without start times.

    An out-tree runs the plan backwards in time: the last node to end is the first to start. Nodes that started before
    an instant and end there precede nodes of zero length at that instant, as in the order of events of a schedule.
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
    """Compute the times of a static mapping, with each node as early as its processors and children allow.

    Parameters
    ----------
    tree : ParallelTree
    sequence : sequence of int
        All nodes, children before parents; each processor runs its nodes in this order.
    on : sequence of sequences
        Processors of each node.
    processors : int
    gates : sequence of int, optional
        For each node, the gate (-1: none) that must open before it starts.
    gate_nodes : sequence of sequences
        For each gate, the nodes, all earlier in the sequence, whose ends open it.
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
