"""Successive halving (after Karnin et al. 2013): of several schedules, those that get on best go on for longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class HasFigure(Protocol):
    """A schedule by its figure, of which less is better."""

    @property
    def figure(self) -> float:
        """Its figure."""
        ...


Entry = TypeVar("Entry", bound=HasFigure)


def halve(
    entries: Sequence[Entry], moves: int, act: Callable[[int, Entry, int], Entry], over: Callable[[], bool]
) -> list[Entry]:
    """Go on from some schedules, and drop half of them, until one is left; return all that came of them.

    Parameters
    ----------
    entries : sequence
    moves : int
        Of all together: as many in each round.
    act : callable
        Makes so many moves (the last argument) from an entry, which stands at this place among the others (the first).
    over : callable
        Asked before each whether to stop.
    """
    rounds = max(1, len(entries)).bit_length()
    found: list[Entry] = []
    for _ in range(rounds):
        each = max(1, moves // rounds // max(1, len(entries)))
        gone = [act(number, entry, each) for number, entry in enumerate(entries) if not over()]
        found += gone
        entries = sorted(gone, key=lambda entry: entry.figure)[: max(1, len(entries) // 2)]
    return found
