"""The kinds of bytes in a memory: one list for pictures, pages and text.

Kinds belong to stays, not to values. The same state is a checkpoint in a stay from which several forwards start, saved
in a stay that a backward reads, and in passing in a stay that only the next forward reads.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from remat.graph.names import NumberedNames
from remat.graph.taskgraph import (
    ACTIVATIONS,
    BUCKETS,
    GATHERED,
    GRADIENTS,
    PARAMETERS,
    STATES,
    IntArray,
    TaskGraph,
)
from remat.report.views.phases import Phase, phases_of_tasks
from remat.report.views.task_index_ranges import TreeLayout

T = TypeVar("T")

STATIC, WORKSPACE, REPLACED = "static memory", "workspace", "being replaced"


class Kind(enum.IntEnum):
    """The purpose of bytes; journals of comparisons store the numbers."""

    STATIC = 0
    CHECKPOINTS = 1
    SAVED = 2
    PASSING = 3
    GRADIENTS = 4
    VALUES = 5
    WORKSPACE = 6
    OTHER = 7
    PARAMETERS = 8
    PARAMETER_GRADIENTS = 9
    STATES = 10
    GATHERED = 11
    BUCKETS = 12

    @property
    def label(self) -> str:
        """The name that a legend shows without training."""
        return kind_label(self, training=False)

    @property
    def meaning(self) -> str:
        """A description in a few words."""
        return _MEANINGS[self]

    @property
    def term(self) -> str:
        """The kind of training memory that it belongs to (`TaskGraph.term`)."""
        return _TERMS.get(self, ACTIVATIONS)


STACKED = (
    *(Kind.STATIC, Kind.PARAMETERS, Kind.STATES, Kind.PARAMETER_GRADIENTS, Kind.GATHERED, Kind.BUCKETS),
    *(Kind.CHECKPOINTS, Kind.SAVED, Kind.PASSING, Kind.GRADIENTS, Kind.VALUES, Kind.WORKSPACE, Kind.OTHER),
)
"""In the order of pictures, from the bottom up."""

TRAINING = frozenset({Kind.PARAMETERS, Kind.PARAMETER_GRADIENTS, Kind.STATES, Kind.GATHERED, Kind.BUCKETS})
"""Kinds that only training with parameters as values has; without it, `Kind.PARAMETERS` are the inputs of a graph."""

_TERMS = {
    Kind.STATIC: STATIC,
    Kind.PARAMETERS: PARAMETERS,
    Kind.PARAMETER_GRADIENTS: GRADIENTS,
    Kind.STATES: STATES,
    Kind.GATHERED: GATHERED,
    Kind.BUCKETS: BUCKETS,
    Kind.WORKSPACE: WORKSPACE,
    Kind.OTHER: REPLACED,
}
OF_TERM = {term: kind for kind, term in _TERMS.items()}
"""The kind of each kind of training memory but activations."""

_ORDER = (PARAMETERS, GRADIENTS, STATES, GATHERED, BUCKETS, ACTIVATIONS, WORKSPACE, STATIC, REPLACED)
"""Training memory in this order."""

_MEANINGS = {
    Kind.STATIC: "permanent bytes that are no value",
    Kind.PARAMETERS: "parameters, or the inputs of a task graph",
    Kind.STATES: "states of the optimizer",
    Kind.PARAMETER_GRADIENTS: "gradients of parameters",
    Kind.GATHERED: "parameters that ranks have gathered for use",
    Kind.BUCKETS: "gradients that ranks are about to reduce",
    Kind.CHECKPOINTS: "states from which a recomputation starts",
    Kind.SAVED: "values that forwards save for backwards, in any memory",
    Kind.PASSING: "outputs that only the next forward reads",
    Kind.GRADIENTS: "gradients that backwards pass to each other",
    Kind.VALUES: "outputs of tasks",
    Kind.WORKSPACE: "memory of tasks while they run",
    Kind.OTHER: "previous copies of values that are being rewritten",
}


def kind_label(kind: Kind, *, training: bool) -> str:
    """Return the name of a kind.

    With training, "gradients" are those of parameters, as in tables, and those of activations have a longer name.
    """
    if kind is Kind.PASSING:
        return "in passing"
    if kind is Kind.GRADIENTS and training:
        return "activation gradients"
    if kind is Kind.PARAMETERS and not training:
        return "inputs"
    return _TERMS.get(kind, kind.name.lower())


def kind_labels(graph: TaskGraph, *, training: bool = False) -> dict[Kind, str]:
    """Return the names of all kinds for an instance; its static memory may be that of training."""
    return {kind: kind_label(kind, training=training or bool(graph.terms)) for kind in Kind}


def by_term(sizes: Mapping[Kind, int]) -> dict[str, dict[Kind, int]]:
    """Group bytes by kind of training memory, in the order of tables; each group is sorted by size."""
    found: dict[str, dict[Kind, int]] = {}
    for kind, size in sorted(sizes.items(), key=lambda item: -item[1]):
        found.setdefault(kind.term, {})[kind] = size
    return in_order(found)


def in_order(terms: Mapping[str, T]) -> dict[str, T]:
    """Return entries by kind of training memory in the order of tables."""
    return dict(sorted(terms.items(), key=lambda item: _ORDER.index(item[0])))


STATE = -1
"""Not a kind: an output that forwards pass on, whose stays decide its kind."""

_STATES, _ALWAYS_SAVED, _GRADIENTS = {"x"}, {"s", "v", "e"}, {"y", "g", "c", "q"}


def kinds_of_values(graph: TaskGraph) -> IntArray:
    """Return for each value its `Kind`, or `STATE`."""
    kinds = np.full(len(graph.values), Kind.VALUES, dtype=np.int64)
    if isinstance(graph.values, NumberedNames):
        if TreeLayout.of(graph) is not None:
            return kinds
        listed = [(_kind_of(graph, prefix.rstrip("0123456789.")), count) for prefix, _, count in graph.values.runs]
        return np.repeat(np.array([kind for kind, _ in listed]), [count for _, count in listed])
    phases = phases_of_tasks(graph)
    by_phase = {Phase.FORWARD: STATE, Phase.SAVING: STATE, Phase.LOSS: Kind.GRADIENTS, Phase.BACKWARD: Kind.GRADIENTS}
    for phase, kind in by_phase.items():
        kinds[graph.writes.items[phases[graph.writes.rows] == phase]] = kind
    if graph.phase is not None:
        kinds[sorted(graph.available)] = Kind.PARAMETERS
    return kinds


def _kind_of(graph: TaskGraph, letters: str) -> int:
    if letters in graph.terms:
        return OF_TERM[graph.terms[letters]]
    if letters in _STATES:
        return STATE
    return Kind.SAVED if letters in _ALWAYS_SAVED else Kind.GRADIENTS if letters in _GRADIENTS else Kind.VALUES
