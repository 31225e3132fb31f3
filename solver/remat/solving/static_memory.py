"""Static memory of an instance's parameters: bytes by kind of value, independent of any schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import ACTIVATIONS, GRADIENTS, PARAMETERS, STATES, TaskGraph


@dataclass(frozen=True, slots=True)
class Term:
    """All values of one kind.

    Attributes
    ----------
    name : str
    size : int
        Bytes of all of them, each once; only the old version of an updated value counts.
    largest : int
        Bytes of the largest.
    homes : tuple of (memory name, bytes)
        Its initial bytes by memory; empty if tasks make it.
    """

    name: str
    size: int
    largest: int
    homes: tuple[tuple[str, int], ...]


NEW = ("n", "p")
"""First letters of the names of values that an update writes."""


def terms_of(graph: TaskGraph, machine: Machine) -> tuple[Term, ...]:
    """Return the kinds of values of an instance, parameters first; empty without training."""
    if not graph.terms:
        return ()
    names = [PARAMETERS, GRADIENTS, STATES, *dict.fromkeys(graph.terms.values()), ACTIVATIONS]
    members: dict[str, list[int]] = {name: [] for name in names}
    for value, name in enumerate(graph.values):
        if not name.startswith(NEW):
            members[graph.term(value)].append(value)
    homes: dict[str, dict[str, int]] = {name: {} for name in names}
    for place in graph.inputs:
        if graph.term(place.value) == ACTIVATIONS:
            continue
        row = homes[graph.term(place.value)]
        memory = place.memory or machine.memories[0].name
        row[memory] = row.get(memory, 0) + int(graph.size[place.value])
    return tuple(
        Term(name, int(size.sum()), int(size.max(initial=0)), tuple(homes[name].items()))
        for name, listed in members.items()
        if len(size := graph.size[np.array(listed, dtype=np.int64)]) and size.any()
    )
