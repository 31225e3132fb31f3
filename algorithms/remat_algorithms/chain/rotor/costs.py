"""A chain's times in whole ticks, each beyond what it takes without recomputation.

The *excess* of a segment is its time beyond that of saving all of it by the quickest ways. It only adds up: a way adds
what it takes beyond the quickest way, a split at j its sweep, less the forward that stage j-1 is spared where it needs
none when processed alone. In whole ticks sums are exact in any order, so that equal times are equal.
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
"""Of any sum that occurs."""


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

    @staticmethod
    def of(segments: Segments) -> Costs:
        """Round the times to ticks: not at all where they are whole numbers whose sums are small enough."""
        states = segments.states
        total: Number = states.whole().time
        largest = max(float(total), float(segments.forward_time.astype(np.float64).sum()))
        terms = segments.length + 2
        whole = states.time.dtype == np.int64 and segments.forward_time.dtype == np.int64
        exact = bool(whole and largest * terms < 2.0**MOST_BITS)
        shift = 0 if exact else min(BITS, MOST_BITS - terms.bit_length()) - int(np.frexp(largest)[1])

        def ticks(times: NumberArray) -> IntArray:
            return (
                times.astype(np.int64) if exact else np.rint(np.ldexp(times.astype(np.float64), shift)).astype(np.int64)
            )

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
            return int(time) - self.whole
        # Sums of rounded times may differ in their last digits.
        return math.ceil(math.ldexp(time, self.shift) * (1 + 1e-12)) - self.whole
