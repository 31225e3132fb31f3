"""A chain's times in whole ticks, each beyond what it takes without recomputation.

The *excess* of a segment is its time beyond that of saving all of it by the quickest ways. It only adds up: a way adds
what it takes beyond the quickest way, a split at j its sweep, less the forward that stage j-1 is spared where it needs
none when processed alone. In whole ticks sums are exact in any order, so that equal times are equal.

A way may take many orders of magnitude longer than the rest of the chain. Ticks that are fine enough for the rest would
not hold it, so it counts as the *cap*, more than a schedule that the ticks suit takes. A schedule below the cap is what
it seems; one that seems to take the cap or more is looked for again, in coarser ticks that suit it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remat.plugin import IntArray, Number, NumberArray
from remat_algorithms.chain.segments import Segments

BITS = 52
"""Of the time without recomputation, where times are no whole numbers: as many as a float has."""

MOST_BITS = 57
"""Of any sum of ways that are not capped."""

MOST = 1 << (MOST_BITS + 1)
"""Ticks as which longer schedules count: more than all ways at the cap take together."""


@dataclass(frozen=True)
class Costs:
    """The times of a chain in ticks.

    Attributes
    ----------
    exact : bool
        Whether a tick is the unit of time, so that ticks are times.
    shift : int
        A unit of time has 2^shift ticks: a power of two, so that only what is cut off is lost.
    whole : int
        Time of the chain without recomputation.
    way : (W,) int64
        Of each way, what saving through takes beyond the stage's quickest.
    leaf : (W,) int64
        Of each way, what its stage takes alone beyond the quickest way to do that.
    alone, spared : (L+1,) int64
        What each stage takes alone, by its quickest way, and how much less that is than saved through.
    forward : (L,) int64
    swept, saved : (L+1,) int64
        Forwards of all stages before, and their times saved through, by their quickest ways.
    cap : int
        Ticks as which slower ways count.
    capped : bool
        Whether any way does.
    """

    exact: bool
    shift: int
    whole: int
    way: IntArray
    leaf: IntArray
    alone: IntArray
    spared: IntArray
    forward: IntArray
    swept: IntArray
    saved: IntArray
    cap: int
    capped: bool

    @staticmethod
    def of(segments: Segments, *, longest: float = 0.0) -> Costs:
        """Round the times to ticks: not at all where they are whole numbers whose sums are small enough.

        Parameters
        ----------
        segments : Segments
        longest : float
            Time of a schedule that ticks are to hold; default: they hold that without recomputation.
        """
        states, terms = segments.states, segments.length + 2
        total: Number = states.whole().time
        slowest = float(np.maximum.reduceat(states.time.astype(np.float64), states.start[:-1]).sum())
        largest = max(float(total), float(segments.forward_time.astype(np.float64).sum()), longest)
        whole = states.time.dtype == np.int64 and segments.forward_time.dtype == np.int64
        exact, shift, cap = False, 0, 0
        for bits in (MOST_BITS, MOST_BITS - 1):
            exact = bool(whole and largest * terms < 2.0**bits)
            shift = 0 if exact else min(BITS, bits - terms.bit_length()) - int(np.frexp(largest)[1])
            # Where the slowest ways would leave the range, the cap leaves room for as many of them as there are stages.
            fits = max(largest, slowest) < math.ldexp(1 / terms, MOST_BITS - shift)
            cap = 2**MOST_BITS if fits else 2**bits // terms
            if fits:
                break

        def ticks(times: NumberArray) -> IntArray:
            if exact:
                return np.minimum(times.astype(np.int64), cap)
            scaled = np.ldexp(np.minimum(times.astype(np.float64), math.ldexp(cap, -shift)), shift)
            return np.minimum(np.rint(scaled).astype(np.int64), cap)

        way, leaf, forward = ticks(states.time), ticks(states.leaf_time), ticks(segments.forward_time)
        owner = states.stage.repeat(np.diff(states.start))
        quick = np.minimum.reduceat(way, states.start[:-1])[states.free]
        alone = np.minimum.reduceat(leaf, states.start[:-1])[states.free]
        return Costs(
            exact=exact,
            shift=shift,
            whole=int(quick[:-1].sum() + alone[-1]),
            way=way - quick[owner],
            leaf=leaf - alone[owner],
            alone=alone,
            spared=quick - alone,
            forward=forward,
            swept=np.append(0, forward.cumsum()),
            saved=np.append(0, quick[:-1].cumsum()),
            cap=cap,
            capped=bool(way.max() >= cap or leaf.max() >= cap),
        )

    def saved_whole(self, first: int, last: int) -> int:
        """Return the time of a segment without recomputation."""
        return int(self.saved[last] - self.saved[first] + self.alone[last])

    def time(self, excess: int) -> Number:
        """Return the time of the whole chain at an excess."""
        return self.whole + excess if self.exact else math.ldexp(self.whole + excess, -self.shift)

    def excess(self, time: Number) -> int:
        """Return the excess of a schedule of the whole chain that takes so long, or a little more."""
        if self.exact:
            return min(int(time), MOST) - self.whole
        # Sums of rounded times may differ in their last digits.
        ticks = math.ldexp(min(time, math.ldexp(MOST, -self.shift)), self.shift)
        return math.ceil(ticks * (1 + 1e-12)) - self.whole
