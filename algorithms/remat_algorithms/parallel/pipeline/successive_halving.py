"""Successive halving (after Karnin et al. 2013): the most successful of several searches continue for longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class HasFigure(Protocol):
    """A schedule with an objective value, to be minimised."""

    @property
    def figure(self) -> float:
        """Objective value."""
        ...


Entry = TypeVar("Entry", bound=HasFigure)


def halve(
    entries: Sequence[Entry], moves: int, act: Callable[[int, Entry, int], Entry], over: Callable[[], bool]
) -> list[Entry]:
    """Continue from several schedules, dropping half of them per round until one is left; return all results.

    Parameters
    ----------
    entries : sequence
    moves : int
        Total number of moves, split evenly among the rounds.
    act : callable
        Makes a number of moves (the last argument) from an entry, whose position is the first argument.
    over : callable
        Polled before each entry for a stop.
    """
    rounds = max(1, len(entries)).bit_length()
    found: list[Entry] = []
    for _ in range(rounds):
        each = max(1, moves // rounds // max(1, len(entries)))
        gone = [act(number, entry, each) for number, entry in enumerate(entries) if not over()]
        found += gone
        entries = sorted(gone, key=lambda entry: entry.figure)[: max(1, len(entries) // 2)]
    return found
