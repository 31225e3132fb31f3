"""The local search of `adjoint-best`: windows of a schedule, replaced by shortest paths between their ends."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from remat_algorithms.joint.adjoint_best.model import Kind, Model, Operation, Situation, apply, cost
from remat_algorithms.joint.adjoint_best.search import Search

WIDEST = 14
"""Maximum span of the states that a window touches."""


class Windows:
    """A schedule and its situations.

    Parameters
    ----------
    model : Model
    operations : list of Operation
    rng : random.Random
        Chooses the windows.
    limit : int
        Maximum number of moves in the search of a window.
    """

    def __init__(self, model: Model, operations: list[Operation], rng: random.Random, *, limit: int) -> None:
        self.model = model
        self.operations = operations
        self.rng = rng
        self.limit = limit
        self.situations = [model.start]
        self._replay(0)

    def step(self, stopped: Callable[[], bool]) -> bool:
        """Search one window; return whether the schedule has improved."""
        first = self._settled(self.rng.randrange(len(self.operations)))
        if first == len(self.operations):
            return False
        width = self.rng.randint(3, WIDEST)
        last = self._end(first, width)
        old = self.operations[first:last]
        before, after = self.situations[first], self.situations[last]
        low = min(operation.state for operation in old)
        part, start, goal = self._part(before, after, low)
        search = Search(part, start, goal)
        found = search.run(limit=self.limit, below=cost(self.model, old), stopped=stopped)
        if found is None:
            return False
        new = [operation._replace(state=operation.state + low) for operation in found[1]]
        reached = before
        for operation in new:
            reached = apply(reached, operation)
        for memory, (held, wanted) in enumerate(zip(reached.held, after.held, strict=True)):
            extra = held & ~wanted
            while extra:
                bit = extra & -extra
                new.append(Operation(Kind.DROP, bit.bit_length() - 1, memory))
                extra ^= bit
        self.operations[first:last] = new
        self._replay(first)
        return True

    def _end(self, first: int, width: int) -> int:
        """Return the end of the window that begins at an operation."""
        top = self.situations[first].back
        last = first
        while last < len(self.operations):
            low = self.operations[last].state
            if top - low >= width and last > first:
                break
            last += 1
        return self._settled(last)

    def _settled(self, place: int) -> int:
        """Return the next position that separates no backward or forward from the drops that belong to it."""
        while place < len(self.operations):
            situation, next_one = self.situations[place], self.operations[place]
            consumed = next_one.kind == Kind.DROP and self.operations[place - 1].kind == Kind.FORWARD
            if next_one.state <= situation.back and not consumed:
                break
            place += 1
        return place

    def _part(self, before: Situation, after: Situation, low: int) -> tuple[Model, Situation, Situation]:
        """Return the model of the states from `low` on; the others stay in place."""
        model, top = self.model, before.back
        inside = slice(low, top + 1)
        frozen = (1 << low) - 1
        part = replace(
            model,
            forward=model.forward[low:top],
            backward=model.backward[inside],
            state=model.state[inside],
            adjoint=model.adjoint[low : top + 2],
            extra=model.extra[inside],
            capacity=[most - model.used(held & frozen) for most, held in zip(model.capacity, before.held, strict=True)],
            copy={ends: times[inside] for ends, times in model.copy.items()},
            given=None,
        )
        start = Situation(top - low, tuple(held >> low for held in before.held))
        goal = Situation(after.back - low, tuple(held >> low for held in after.held))
        return part, start, goal

    def _replay(self, first: int) -> None:
        """Update the situations after an operation."""
        del self.situations[first + 1 :]
        for operation in self.operations[first:]:
            self.situations.append(apply(self.situations[-1], operation))
