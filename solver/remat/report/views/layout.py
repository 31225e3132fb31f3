"""Where the tasks and values of lowered chains and trees stand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.names import NumberedNames
from remat.taskgraph import IntArray, TaskGraph


@dataclass(frozen=True, slots=True)
class ChainLayout:
    """Where the tasks of a lowered chain stand: F1..FL, Fe1..FeL (or none), loss, B1..BL.

    A stage of several variants has several Fe and as many B.
    """

    length: int
    saves: bool
    loss: int

    @staticmethod
    def of(graph: TaskGraph) -> ChainLayout | None:
        """Return the layout of a chain or an adjoint; None for other kinds."""
        loss = graph.tasks.find("loss") if isinstance(graph.tasks, NumberedNames) else None
        if loss is None:
            return None
        backwards = len(graph.tasks) - 1 - loss
        saves = loss > backwards
        return ChainLayout(loss - backwards if saves else loss, saves, loss)

    def stages(self, graph: TaskGraph) -> IntArray:
        """Return the stage of each task, from 1; that of the loss is `length` + 1."""
        one = np.arange(1, self.length + 1, dtype=np.int64)
        ways = len(graph.tasks) - 1 - self.loss
        backward = one
        if ways != self.length:
            names = (graph.tasks[k] for k in range(self.loss + 1, len(graph.tasks)))
            backward = np.array([int(name[1:].partition(".")[0]) for name in names], dtype=np.int64)
        saving = backward if self.saves else one[:0]
        return np.concatenate((one, saving, [self.length + 1], backward))


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """The parent of each node, -1 of the root; whether children come before their parents."""

    parent: IntArray
    inward: bool

    @staticmethod
    def of(graph: TaskGraph) -> TreeLayout | None:
        """Return the layout of a lowered tree; None for other kinds."""
        named = isinstance(graph.tasks, NumberedNames) and len(graph.tasks) > 0 and graph.tasks[0] == "T0"
        if not named or len(graph.values) != len(graph.tasks):
            return None
        inward = bool(graph.outputs)
        children = graph.reads if inward else graph.writes
        parent = np.full(len(graph.tasks), -1, dtype=np.int64)
        parent[children.items] = children.rows
        return TreeLayout(parent, inward)
