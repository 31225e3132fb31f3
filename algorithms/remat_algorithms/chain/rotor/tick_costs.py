"""A chain's times in integer ticks, relative to no recomputation.

The *excess* of a segment is its time beyond that of saving all of it by the fastest variants. It is a plain sum. A
variant adds its time beyond the fastest one. A split at j adds its sweep, minus the forward that stage j-1 is spared if
it needs none when processed alone. In integer ticks, sums are exact in any order, so equal times are equal.

A variant may take many orders of magnitude longer than the rest of the chain. Ticks fine enough for the rest could not
represent it. It therefore counts as the *cap*, which exceeds the time of any schedule that suits the ticks. A schedule
below the cap has its true time. A schedule that reaches the cap is searched again, in coarser ticks that suit it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remat.plugin import IntArray, Number, NumberArray
from remat_algorithms.chain.segments import Segments

BITS = 52
"""Bits of the time without recomputation, if times are not integers: the precision of a float."""

MOST_BITS = 57
"""Bits of any sum of uncapped variants."""

MOST = 1 << (MOST_BITS + 1)
"""Ticks as which longer schedules count: more than the sum of all capped variants."""


@dataclass(frozen=True)
class Costs:
    """The times of a chain in ticks.

    Attributes
    ----------
    exact : bool
        Whether a tick is the unit of time, so that ticks are times.
    shift : int
        A unit of time has 2^shift ticks; a power of two, so that only truncated bits are lost.
    whole : int
        Time of the chain without recomputation.
    way : (W,) int64
        For each variant, the time of saving beyond that of the stage's fastest.
    leaf : (W,) int64
        For each variant, the time of its stage alone beyond that of the fastest variant.
    alone, spared : (L+1,) int64
        Time of each stage alone, by its fastest variant, and how much less that is than its time when saved.
    forward : (L,) int64
    swept, saved : (L+1,) int64
        Forward times of all previous stages, and their times when saved by their fastest variants.
    cap : int
        Ticks as which slower variants count.
    capped : bool
        Whether any variant is capped.
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
        """Round the times to ticks; integer times with sufficiently small sums are not rounded.

        Parameters
        ----------
        segments : Segments
        longest : float
            Time of a schedule that ticks must represent; default: the one without recomputation.
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
            # If the slowest variants would exceed the range, the cap allows one of them per stage.
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
        """Return the time of the whole chain for an excess."""
        return self.whole + excess if self.exact else math.ldexp(self.whole + excess, -self.shift)

    def excess(self, time: Number) -> int:
        """Return the excess of a schedule of the whole chain with this time, rounded up."""
        if self.exact:
            return min(int(time), MOST) - self.whole
        # Sums of rounded times may differ in their last digits.
        ticks = math.ldexp(min(time, math.ldexp(MOST, -self.shift)), self.shift)
        return math.ceil(ticks * (1 + 1e-12)) - self.whole
