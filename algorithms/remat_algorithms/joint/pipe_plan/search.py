"""Orders and recomputation of one outline: lists of rules, the recomputation with which they fit, and local search."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.joint.pipe_plan.encoding import Outline
from remat_algorithms.parallel.pipeline.local_search.arrays import lists_of, start_keys
from remat_algorithms.parallel.pipeline.local_search.driver import LocalSearch
from remat_algorithms.parallel.pipeline.model import B, F, Lists, W, complete
from remat_algorithms.parallel.pipeline.successive_halving import halve

HEATS = (0.05, 1.0)
"""Alternating limits on the slowdown of an accepted schedule, in mean operation times."""

KEPT = 8
"""Number of orders at the start of the local search."""
BOUND = 0.0
"""A lower bound on all figures: the search ends early only if all times are 0."""

AT_ONCE = 6_000_000
"""Operations times classes between two checks whether to stop."""
DRIFTING = 0.5
"""Share of the moves that search for regular schedules."""

BEGINNINGS = 8
"""Number of regular schedules at the start."""

SPREADS = (0.0, 0.05, 0.1, 0.02)
"""Alternating ranges of the initial gaps of a regular schedule, in loads."""


@dataclass(frozen=True)
class Entry:
    """A schedule: its figure, the start times that reproduce it, and its recomputation.

    For a regular one also: its gaps, those of its W's, its mean levels, and its period.
    """

    figure: float
    keys: Any
    level: IntArray
    lists: Lists
    advance: IntArray
    regular: tuple[Any, Any, Any, float] | None = None


class Walks:
    """Searches of one outline; deterministic for a seed and a number of moves."""

    def __init__(self, outline: Outline, seed: int, stop: Callable[[], bool]) -> None:
        self.outline, self.stop = outline, stop
        self.facts = facts = outline.facts()
        self.size = max(1, int(facts.runs.sum()) * len(facts.runs))
        self.kernel = LocalSearch(facts, seed, AT_ONCE // self.size)
        self.walked = 0

    def begin(self, starts: Sequence[Lists]) -> list[Entry]:
        """Return schedules of given lists and of rules, with levels that fit them, best first."""
        found: dict[bytes, Entry] = {}
        for lists in starts:
            whole = complete(self.outline.model, lists)
            keys = None if whole is None else start_keys(self.outline.model, whole)
            if whole is None or keys is None:
                continue
            for level in self._levels(whole):
                for patience in (-1.0, 1.0):
                    if self.stop() and found:
                        return _sorted(found)
                    entry = self._schedule(keys, level, patience)
                    if entry is not None:
                        found.setdefault(entry.keys.tobytes() + entry.level.tobytes(), entry)
        return _sorted(found)

    def repeat(self, lists: Lists, level: IntArray) -> Entry | None:
        """Return the schedule of lists with given levels; None if it does not fit."""
        whole = complete(self.outline.model, lists)
        keys = None if whole is None else start_keys(self.outline.model, whole)
        return None if keys is None else self._schedule(keys, level, -1.0)

    def _levels(self, lists: Lists) -> Iterator[IntArray]:
        """Yield levels: those with which the lists fit, and uniform ones."""
        fitted = fitting_levels(self.outline, lists)
        if fitted is not None:
            yield fitted
        most = int(self.facts.levels.max())
        for share in (0.0, 0.25, 0.5, 0.75, 1.0) if most > 1 else (0.0,):
            level = np.rint(share * (self.facts.levels - 1)).astype(np.int64)
            yield np.repeat(level[:, None], self.facts.batches, axis=1)

    def _schedule(self, keys: Any, level: IntArray, patience: float) -> Entry | None:
        figure = self.kernel.build(keys, patience, level)
        if figure == math.inf:
            return None
        self.kernel.progress.best = math.inf
        self.kernel.take(figure)
        return self._entry()

    def _entry(self) -> Entry:
        state = self.kernel.state
        lists = lists_of(self.facts, self.kernel.best_order)
        best = self.kernel.progress.best
        return Entry(best, state.best.copy(), state.best_option.copy(), lists, state.best_early.copy())

    def walk(self, number: int, entry: Entry, moves: int) -> Entry:
        """Continue from a schedule."""
        progress = self.kernel.progress
        figure = self.kernel.build(entry.keys, -1.0, entry.level)
        if figure == math.inf:
            return entry
        progress.best = math.inf
        self.kernel.take(figure)
        self.walked += 1
        heat = HEATS[(number + self.walked) % len(HEATS)]
        for part in self.kernel.parts(moves, self._over):
            self.kernel.walk(part, heat, BOUND)
        return self._entry() if progress.best < entry.figure else entry

    def drift(self, number: int, entry: Entry, moves: int) -> Entry:
        """Search for a regular schedule with recomputation similar to another's, or continue from a regular one."""
        state, progress = self.kernel.state, self.kernel.progress
        progress.best = math.inf
        spread = SPREADS[number % len(SPREADS)]
        state.current_option[:] = entry.level
        if entry.regular is not None:
            spread = -1.0
            state.gap[1], state.late[1], state.share[1], progress.period = entry.regular
            progress.current = entry.figure
        for part in self.kernel.parts(moves, self._over):
            self.kernel.drift(part, spread, BOUND)
            spread = -1.0
        if progress.best == math.inf or (entry.regular is not None and progress.best >= entry.figure):
            return entry
        regular = (state.gap[1].copy(), state.late[1].copy(), state.share[1].copy(), float(progress.period))
        return replace(self._entry(), regular=regular)

    def _over(self) -> bool:
        return self.kernel.progress.best <= BOUND or self.stop()

    def improve(self, entries: list[Entry], moves: int) -> Entry:
        """Continue from several schedules, and repeatedly drop half of them, until one is left."""
        begun = [replace(entries[number % min(len(entries), 4)], regular=None) for number in range(BEGINNINGS)]
        drifted = halve(begun, int(DRIFTING * moves), self.drift, self.stop)
        unique = {entry.keys.tobytes() + entry.level.tobytes(): entry for entry in [*drifted, *entries]}
        walked = halve(_sorted(unique)[:KEPT], int((1 - DRIFTING) * moves), self.walk, self.stop)
        return min([*walked, *drifted, *entries], key=lambda entry: entry.figure)


def _sorted(found: dict[bytes, Entry]) -> list[Entry]:
    return sorted(found.values(), key=lambda entry: entry.figure)


def fitting_levels(outline: Outline, lists: Lists, apart: IntArray | None = None) -> IntArray | None:
    """Return the levels of micro-batches with which lists fit, device by device; None if no levels suffice.

    Pairs of stage and micro-batch in `apart` are in other memories between their forward and their backward.

    If memory is short, the active micro-batch whose backward comes last recomputes more: its bytes would be held
    longest. For intervals of equal size, this covers every instant with the fewest intervals.
    """
    model = outline.model
    level = np.zeros((model.stages, model.batches), dtype=np.int64)
    apart = np.zeros_like(level) if apart is None else apart
    for device, listed in enumerate(lists):
        own = model.on[device]
        if not own:
            continue
        room = outline.room[device]
        if not _fitted(outline, listed, room, level, apart):
            return None
    return level


def _fitted(
    outline: Outline, listed: Sequence[tuple[int, int, int]], room: int, level: IntArray, apart: IntArray
) -> bool:
    """Raise the levels of one device's micro-batches until its list fits."""
    model, levels = outline.model, outline.levels
    last = {(stage, batch): place for place, (phase, stage, batch) in enumerate(listed) if phase == B}
    spare = max(levels[stage][0].backward for _, stage, _ in listed)
    for turn in range(3):
        raised = False
        use, flying = 0, dict[tuple[int, int], None]()
        for phase, stage, batch in listed:
            one = levels[stage][int(level[stage, batch])]
            if phase == F:
                use += one.held
                needs = use + max(spare, one.forward - one.held)
                if apart[stage, batch]:
                    use -= one.held
                else:
                    flying[stage, batch] = None
            elif phase == W:
                use -= model.kept[stage]
                continue
            else:
                use += one.held if apart[stage, batch] else 0
                needs = use + one.backward
            while needs > room:
                found = [
                    key
                    for key in flying
                    if level[key] + 1 < len(levels[key[0]]) and not (phase == B and key == (stage, batch))
                ]
                if not found:
                    return False
                key = max(found, key=lambda key: (last[key], key))
                before, after = levels[key[0]][int(level[key])], levels[key[0]][int(level[key]) + 1]
                level[key] += 1
                raised = True
                use -= before.held - after.held
                needs -= before.held - after.held
                if after.backward > spare:
                    needs += after.backward - spare if phase == F else 0
                    spare = after.backward
            if phase == B:
                flying.pop((stage, batch), None)
                use += model.kept[stage] - one.held
        if not raised and turn:
            break
    return True
