"""Beam search: partial layouts are extended by one buffer at a time, and the most promising ones are kept.

Buffers are placed from a *centre* outwards: first those that live in the centre section, then those nearest to it in
time, larger ones first. With the first section as centre, the order is that of time. A buffer is placed at either end
of each gap. The cost of a partial layout is summed over all sections. For each one, the remaining buffers are packed
into its gaps, best fit decreasing. What finds no gap costs by its bytes, and fragmented free bytes cost in sections
that are nearly full. A partial layout is dropped if a section has no gap for its largest remaining buffer.

Partial layouts of equal cost mostly differ in nothing that matters later, such as the order of two neighbours that end
together. Of them, one is kept. Narrow beams from several centres come before wide ones. Beams find small arenas where
few buffers live at a time and sizes rarely add up exactly. The search over floors needs far more time there.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from remat.plugin import FREE, Buffers, Context, IntArray
from remat_algorithms.layout import beam_kernel as kernel
from remat_algorithms.layout.layout_search import LayoutSearch
from remat_algorithms.layout.live_bytes import loads, rows_within

FIRST_WIDTH, WIDEST, MOST_CELLS = 64, 16_384, 4_000_000
"""Width of the first beams, of the last ones, and the largest product of width and buffers."""

TURNS = 8
"""Beams after which the width doubles."""

MOST_PAIRS = 60_000
"""Pairs of buffers that live in one section, summed over the sections, beyond which a beam takes too long."""

SHARES = (0.1, 0.3, 0.05, 0.2, 0.5, 0.02)
"""Distances of the next arenas below the best one, as shares of the distance to the lower bound."""

FRAGMENTATION, STEEP = (0.3, 1.0, 0.1), 8
"""Weights of fragmentation relative to bytes that find no gap, and the power of the load with which they fall."""

NOISES = (0.0, 0.1, 0.3, 0.3)
"""Random relative amounts added to the costs."""

UNIT, SETUP, SETUP_OF_ROW = 3, 100_000, 5_000
"""Nanoseconds of a step of the kernel, and of the arrays of a beam: in all, and for each buffer and section."""


class Beams(LayoutSearch):
    """Beams of growing width for the same buffers."""

    share = 0.25
    _centre, _weight, _found = 0, 0.0, False

    @cached_property
    def _draw(self) -> np.random.Generator:
        return np.random.default_rng(self._context.seed)

    @cached_property
    def _load(self) -> IntArray:
        """The live bytes of each section."""
        return loads(self._buffers, self._buffers.rounded)

    @property
    def _is_small(self) -> bool:
        return len(self._buffers) <= MOST_PAIRS and self._pairs <= MOST_PAIRS

    def _run(self, arenas: range, work: int, best: IntArray | None) -> IntArray | None:
        turn, buffers = self._turn, self._buffers
        if not self._found:
            self._centre, self._weight = self._next_centre(turn), FRAGMENTATION[turn % len(FRAGMENTATION)]
        arena = arenas[-1 - int(SHARES[turn % len(SHARES)] * (len(arenas) - 1))]
        width = min(WIDEST, FIRST_WIDTH << turn // TURNS, max(1, MOST_CELLS // len(buffers)))
        run = _Run(buffers, arena, self._centre, width, self._weight)
        offset, steps = run.search(NOISES[turn % len(NOISES)], self._draw, self._context)
        # A beam that ends at once takes the time of its arrays.
        self.work, self._found = self.work + max(UNIT * steps, run.setup), offset is not None
        return offset

    def _next_centre(self, turn: int) -> int:
        """Return the section from which buffers are placed outwards: the first, the last, the fullest, or any."""
        kind = turn % 5
        fullest = int(self._load.argmax())
        return (0, len(self._load) - 1, fullest)[kind] if kind < 3 else int(self._draw.integers(len(self._load)))


class _Run:
    """One beam."""

    def __init__(self, buffers: Buffers, capacity: int, centre: int, width: int, fragmentation: float) -> None:
        most, sections, first, last, size, fixed = rows_within(buffers, capacity)
        distance = np.maximum(0, np.maximum(first - centre, centre + 1 - last))
        order = np.lexsort((-size, distance, fixed == FREE))
        self._order, self._count, count = order, len(buffers), len(order)
        self.setup = SETUP + SETUP_OF_ROW * (count + sections)
        first, last, size, fixed = first[order], last[order], size[order], fixed[order]
        live = [np.flatnonzero((first <= section) & (section < last)) for section in range(sections)]
        live = [rows[np.argsort(-size[rows], kind="stable")] for rows in live]
        earlier = [np.flatnonzero((first[:k] < last[k]) & (first[k] < last[:k])) for k in range(count)]
        load = np.array([size[rows].sum() for rows in live], dtype=np.float64)
        self._rows = kernel.Rows(
            first=first,
            last=last,
            size=size,
            fixed=fixed,
            begin=_begins(live),
            item=np.concatenate(live),
            before=_begins(earlier),
            earlier=np.concatenate(earlier),
            weight=fragmentation * (load / load.max()) ** STEEP,
            capacity=most,
            width=width,
        )
        offsets = 2 * (max(map(len, earlier), default=0) + 1)
        self._states = kernel.States(
            offset=np.zeros((2, width, count), dtype=np.int64),
            cost=np.zeros((2, width, sections), dtype=np.int64),
            total=np.zeros((2, width), dtype=np.int64),
            candidate=np.empty((width * offsets, 3), dtype=np.int64),
            chosen=np.empty(width, dtype=np.int64),
            low=np.empty(count + 1, dtype=np.int64),
            high=np.empty(count + 1, dtype=np.int64),
            gap=np.empty(count + 1, dtype=np.int64),
            at=kernel.Beam(),
        )

    def search(self, noise: float, draw: np.random.Generator, context: Context) -> tuple[IntArray | None, int]:
        """Return a layout, or None if no partial layout is left; and the work done."""
        states, at = self._states, self._states.at
        at.states = 1
        expand, keep = (one.bind(self._rows, states) for one in (kernel.EXPAND, kernel.KEEP))
        for _ in range(len(self._order)):
            expand()
            if not at.candidates or context.stopped:
                return None, int(at.work)
            # Of equal costs, the first candidate is kept.
            total, candidate = np.unique(states.candidate[: at.candidates, kernel.TOTAL], return_index=True)
            if noise:
                candidate = candidate[np.argsort(total * (1 + noise * draw.random(len(total))), kind="stable")]
            chosen = candidate[: self._rows.width]
            states.chosen[: len(chosen)] = chosen
            at.work += 30 * at.candidates
            keep(len(chosen))
        offset = np.empty(len(self._order), dtype=np.int64)
        offset[self._order] = states.offset[at.side, 0]
        return offset[: self._count], int(at.work)


def _begins(lists: list[IntArray]) -> IntArray:
    return np.cumsum([0, *map(len, lists)], dtype=np.int64)
