"""Memory constraints of every sequential schedule of a chain in one memory, at its moments.

A *moment* is the run of a backward B_p (the loss, for p = L), a point in the order at which memory is bounded. At this
point, each value that later backwards read is either in memory or recomputed afterwards by its stage, which has run
before. In minimal schedules, each backward runs once, in the order B_L, .., B_0. An additional run of B_p has no effect
if no task reads its y_p before the next run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat.plugin import Chain, IntArray, NumberArray

BITS = 44
"""Bits of the total time of all forwards, if times are not integers. Sums over some twenty moments stay below 2^50."""


@dataclass(frozen=True)
class Moments:
    """Memory and times of a chain at its moments, in integer ticks.

    Attributes
    ----------
    length : int
    room : (L+1,) int64
        Bytes that B_p leaves for values that it does not read; negative if it does not fit.
    activation, saved : (L+1,) int64
        Bytes of x_k, and of s_k if the backwards read it (0 for k = L).
    reads_input, reads_output, reads_saved : (L+1,) bool
        Reads of B_p; the loss reads x_L.
    forward : (L,) int64
        Time of the fastest run of each stage.
    saving : (L,) int64
        Additional time of a run that produces s_k.
    shift : int
        A unit of time has 2^shift ticks; truncated fractions weaken the bound.
    exact : bool
        Whether ticks are units.
    saves : bool
        Whether saving forwards exist.
    """

    length: int
    room: IntArray
    activation: IntArray
    saved: IntArray
    reads_input: tuple[bool, ...]
    reads_output: tuple[bool, ...]
    reads_saved: tuple[bool, ...]
    forward: IntArray
    saving: IntArray
    shift: int
    exact: bool
    saves: bool

    @staticmethod
    def of(chain: Chain, budget: int) -> Moments:
        """Build the moments of a chain whose stages have no variants (O(L)).

        Parameters
        ----------
        chain : Chain
        budget : int
            Total capacity, including static memory.
        """
        saves = chain.reads_saved & chain.saves
        saved = np.append(np.where(saves, chain.saved_size, 0), 0)
        forward = np.minimum(chain.forward_time, chain.saving_forward_time) if chain.saves else chain.forward_time
        exact = forward.dtype == np.int64 and float(chain.saving_forward_time.sum()) < 2.0**BITS
        largest = float(np.maximum(chain.forward_time, chain.saving_forward_time).astype(np.float64).sum())
        shift = 0 if exact else BITS - int(np.frexp(largest)[1])

        def ticks(times: NumberArray) -> IntArray:
            return times if exact else np.floor(np.ldexp(times.astype(np.float64), shift)).astype(np.int64)

        quickest = ticks(forward)
        return Moments(
            length=chain.length,
            room=budget - chain.static_memory - backward_bytes(chain, saved),
            activation=chain.activation_size,
            saved=saved,
            reads_input=(*chain.reads_input.tolist(), True),
            reads_output=(*chain.reads_output.tolist(), False),
            reads_saved=(*saves.tolist(), False),
            forward=quickest,
            saving=np.where(saves, ticks(chain.saving_forward_time) - quickest, 0),
            shift=shift,
            exact=exact,
            saves=chain.saves,
        )

    def excess(self, runs: Sequence[int]) -> int:
        """Return the ticks that runs (tasks of the task graph) spend beyond one run of each stage."""
        total = 0
        for task in runs:
            if task < self.length * (2 if self.saves else 1):
                stage = task % self.length
                total += int(self.forward[stage]) + (int(self.saving[stage]) if task >= self.length else 0)
        return total - int((self.forward + self.saving).sum())

    def time(self, ticks: int) -> float | int:
        """Return ticks as time, without rounding up."""
        return ticks if self.exact else math.ldexp(ticks, -self.shift) * (1 - 1e-12)


def backward_bytes(chain: Chain, saved: IntArray) -> IntArray:
    """Return the bytes of each backward itself (the loss last): its inputs, outputs and workspace.

    `saved` contains the bytes of s_k if the backwards read it, and 0 for the loss. (L+1,)
    """
    x, y = chain.activation_size, chain.gradient_size
    reads = np.append(y[1:] + saved[:-1] + np.where(chain.reads_output, x[1:], 0), 0)
    reads += np.where(np.append(chain.reads_input, True), x, 0)
    written = np.maximum(0, y - reads) if chain.in_place else y
    own: IntArray = reads + written + np.append(chain.backward_workspace, chain.loss_workspace)
    return own
