"""Ordered operations of pipeline devices with their task graph."""

from dataclasses import dataclass

from remat.graph.taskgraph import BoolArray, IntArray, Ragged, TaskGraph


@dataclass(frozen=True)
class Plan:
    """Ordered operations of all devices, and their task graph.

    Attributes
    ----------
    graph : TaskGraph
        Includes the exchanges and updates of this plan.
    processors : (operations,) int64
        The processor of each operation; ascending.
    operations : Ragged
        The tasks of each.
    beside : bool for each of these tasks
        Whether the task runs simultaneously with its predecessor.
    """

    graph: TaskGraph
    processors: IntArray
    operations: Ragged
    beside: BoolArray
