"""Offload priorities: the offloaded values of a plan and their times, in a form that applies to other runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat.plugin import BoolArray, IntArray, StepKind, Steps

NTH = 4
"""Number of gaps of a value that have separate keys; the last key represents all further gaps."""

KEPT, FORCED = 1e3, 2e3
"""Score bonus of a gap that was offloaded before, and of one that is forced once."""

FRESH = 0.05
"""Share of the plans that ignore the priorities."""

DROPPED, ADDED = (0, 0, 1, 1, 2, 3, 5, 10), (0, 0, 0, 1, 1, 2)
"""Numbers of gaps that lose their bonus, and of gaps that are forced, in one plan."""

SPARED = 0.3
"""Share of the unnecessary offloads that are omitted."""

TIMED = (0, 0, 1, 2)
"""Numbers of gaps whose times change in one plan."""

EARLY, LEAVES_LATER = 0.4, 0.3
"""Share of these with both transfers as early as possible, and share of the others that leave later."""

LEAVES = -1.0
"""Replaces the part of a gap if its value leaves later."""


def gap_keys(values: IntArray) -> IntArray:
    """Return a key for each gap, from its value and its index among the value's gaps; O(gaps log gaps)."""
    order = np.argsort(values, kind="stable")
    along = values[order]
    first = np.flatnonzero(np.diff(along, prepend=-1))
    nth = np.empty(len(values), dtype=np.int64)
    nth[order] = np.arange(len(values)) - np.repeat(first, np.diff(first, append=len(values)))
    keys: IntArray = values * NTH + np.minimum(nth, NTH - 1)
    return keys


@dataclass(frozen=True)
class Taste:
    """Offload priorities, by `gap_keys`.

    Attributes
    ----------
    kept, more : (keys,) bool
        Gaps with offloading; those of them that are unnecessary.
    part : (keys,)
        Earliest return, as a part of the gap. `LEAVES`: the value leaves with the run before the gap at the earliest;
        NaN: both transfers as early as possible.
    """

    kept: BoolArray
    more: BoolArray
    part: np.ndarray

    def preferences(self, keys: IntArray, draw: random.Random) -> np.ndarray:
        """Return score bonuses of some gaps: those that were offloaded get one, except for some random ones."""
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
        """Return the gaps with unnecessary offloading."""
        found: BoolArray = self.more[keys]
        for at in np.flatnonzero(found).tolist():
            found[at] = draw.random() >= SPARED
        return found

    def parts(self, keys: IntArray, draw: random.Random) -> np.ndarray:
        """Return the times of some gaps, with random changes."""
        part: np.ndarray = self.part[keys]
        for _ in range(draw.choice(TIMED) if len(keys) else 0):
            at = draw.randrange(len(keys))
            part[at] = np.nan
            if draw.random() >= EARLY:
                part[at] = LEAVES if draw.random() < LEAVES_LATER else draw.random()
        return part


def taste_of(values: int, keys: IntArray, needless: int = 0, part: np.ndarray | None = None) -> Taste:
    """Return the offload priorities of a plan.

    Parameters
    ----------
    values : int
        Number of values.
    keys : (gaps,) int
        Keys of the gaps with offloading.
    needless : int
        Number of these, the last ones, that are unnecessary.
    part : (gaps,), optional
        Their times; default: all as early as possible.
    """
    kept, more = np.zeros((2, values * NTH), dtype=bool)
    kept[keys] = True
    more[keys[len(keys) - needless :]] = True
    parts = np.full(values * NTH, np.nan)
    if part is not None:
        parts[keys] = part
    return Taste(kept, more, parts)


def taste_of_steps(steps: Steps, reads: Sequence[Sequence[int]], values: int, device: int) -> Taste:
    """Return the offload priorities of a schedule: the gaps in which values return to a memory.

    Parameters
    ----------
    steps : Steps
        In the order in which they start.
    reads : sequence of sequences of int
        Inputs of each task.
    values, device : int
        Number of values; the memory.
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
