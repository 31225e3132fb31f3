"""Index ranges of the tasks and values of lowered chains and trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.graph.names import NumberedNames
from remat.graph.taskgraph import IntArray, TaskGraph

_OF_PARAMETERS = ("A", "U", "P")


@dataclass(frozen=True, slots=True)
class ChainLayout:
    """Task indices of a lowered chain: F1..FL, Fe1..FeL (or none), loss, B1..BL, and the tasks of parameters.

    A stage with several variants has one Fe and one B for each. Only a stage with parameters has a U; it has A and P
    if ranks exchange and gather them.
    """

    length: int
    saves: bool
    loss: int

    @staticmethod
    def of(graph: TaskGraph) -> ChainLayout | None:
        """Return the layout of a chain or an adjoint; None for other kinds."""
        if not isinstance(graph.tasks, NumberedNames) or (loss := graph.tasks.find("loss")) is None:
            return None
        of_parameters = sum(count for prefix, _, count in graph.tasks.runs if prefix in _OF_PARAMETERS)
        backwards = len(graph.tasks) - 1 - loss - of_parameters
        saves = loss > backwards
        return ChainLayout(loss - backwards if saves else loss, saves, loss)

    def stages(self, graph: TaskGraph) -> IntArray:
        """Return the stage of each task, from 1; the loss has stage `length` + 1."""
        one = np.arange(1, self.length + 1, dtype=np.int64)
        after = backward = one  # of the tasks after the loss, and of the backwards among them
        if len(graph.tasks) - 1 - self.loss != self.length:
            names = (graph.tasks[k] for k in range(self.loss + 1, len(graph.tasks)))
            after = np.array([int(name[1:].partition(".")[0]) for name in names], dtype=np.int64)
            backward = after[: self.loss - self.length] if self.saves else after[: self.length]
        saving = backward if self.saves else one[:0]
        return np.concatenate((one, saving, [self.length + 1], after))


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """The parent of each node (-1 for the root), and whether children precede their parents."""

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
