"""What leaves in a plan, and when, as a taste that other runs can be given, too."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat.plugin import BoolArray, IntArray, StepKind, Steps

NTH = 4
"""Gaps of a value that are told apart: the first ones; the last of these stands for all others."""

KEPT, FORCED = 1e3, 2e3
"""What is added to the score of a gap that left before, and of one that is to leave for once."""

FRESH = 0.05
"""Share of the plans that care for no taste."""

DROPPED, ADDED = (0, 0, 1, 1, 2, 3, 5, 10), (0, 0, 0, 1, 1, 2)
"""Gaps that need not leave any more, and gaps that are to, in one plan."""

SPARED = 0.3
"""Share of what left without need that does not any more."""

TIMED = (0, 0, 1, 2)
"""Gaps whose times change in one plan."""

EARLY, LEAVES_LATER = 0.4, 0.3
"""Share of these that leave and come back as early as they can, and share of the others that leave later."""

LEAVES = -1.0
"""Says in place of a part of the gap that its value leaves later."""


def gap_keys(values: IntArray) -> IntArray:
    """Return a key for each gap, by its value and which of its gaps it is; O(gaps log gaps)."""
    order = np.argsort(values, kind="stable")
    along = values[order]
    first = np.flatnonzero(np.diff(along, prepend=-1))
    nth = np.empty(len(values), dtype=np.int64)
    nth[order] = np.arange(len(values)) - np.repeat(first, np.diff(first, append=len(values)))
    keys: IntArray = values * NTH + np.minimum(nth, NTH - 1)
    return keys


@dataclass(frozen=True)
class Taste:
    """What leaves, by `gap_keys`.

    Attributes
    ----------
    kept, more : (keys,) bool
        What leaves; and that of it that would not have to.
    part : (keys,)
        When it comes back at the earliest, as a part of its gap; `LEAVES`: it leaves with the run before the gap at the
        earliest; NaN: both as early as it can.
    """

    kept: BoolArray
    more: BoolArray
    part: np.ndarray

    def preferences(self, keys: IntArray, draw: random.Random) -> np.ndarray:
        """Return what is added to the scores of some gaps: those that left do so again, but for some that are drawn."""
        score = np.zeros(len(keys))
        if draw.random() < FRESH:
            return score
        kept = np.flatnonzero(self.kept[keys])
        score[kept] = KEPT
        if len(kept):
            score[draw.choices(kept.tolist(), k=draw.choice(DROPPED))] = 0.0
        for _ in range(draw.choice(ADDED) if len(keys) else 0):
            score[draw.randrange(len(keys))] = FORCED
        return score

    def needless(self, keys: IntArray, draw: random.Random) -> BoolArray:
        """Return which gaps' values leave though they need not."""
        found: BoolArray = self.more[keys]
        for at in np.flatnonzero(found).tolist():
            found[at] = draw.random() >= SPARED
        return found

    def parts(self, keys: IntArray, draw: random.Random) -> np.ndarray:
        """Return the times of some gaps, some of them changed."""
        part: np.ndarray = self.part[keys]
        for _ in range(draw.choice(TIMED) if len(keys) else 0):
            at = draw.randrange(len(keys))
            part[at] = np.nan
            if draw.random() >= EARLY:
                part[at] = LEAVES if draw.random() < LEAVES_LATER else draw.random()
        return part


def taste_of(values: int, keys: IntArray, needless: int = 0, part: np.ndarray | None = None) -> Taste:
    """Return the taste of a plan.

    Parameters
    ----------
    values : int
        How many there are.
    keys : (gaps,) int
        Of what leaves.
    needless : int
        So many of these, the last ones, need not leave.
    part : (gaps,), optional
        Their times; default: all as early as they can.
    """
    kept, more = np.zeros((2, values * NTH), dtype=bool)
    kept[keys] = True
    more[keys[len(keys) - needless :]] = True
    parts = np.full(values * NTH, np.nan)
    if part is not None:
        parts[keys] = part
    return Taste(kept, more, parts)


def taste_of_steps(steps: Steps, reads: Sequence[Sequence[int]], values: int, device: int) -> Taste:
    """Return the taste of a schedule: the gaps in which values come back to a memory.

    Parameters
    ----------
    steps : Steps
        In the order in which they start.
    reads : sequence of sequences of int
        What each task reads.
    values, device : int
        How many values there are; the memory.
    """
    seen = [0] * values
    keys: list[int] = []
    for kind, item, target in zip(steps.kind.tolist(), steps.item.tolist(), steps.target.tolist(), strict=True):
        if kind == StepKind.RUN:
            for value in reads[item]:
                seen[value] += 1
        elif kind == StepKind.COPY and target == device:
            keys.append(item * NTH + min(seen[item], NTH - 1))
    return taste_of(values, np.array(keys, dtype=np.int64))
