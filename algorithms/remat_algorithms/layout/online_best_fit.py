"""`online-best-fit`: an allocator that learns of each buffer when it starts, and never moves one.

Each buffer goes into the smallest gap between the buffers that live at its start; of equal gaps, into the lowest. A
buffer that fits in no gap is placed on top. Ends and later buffers are unknown. This equals `best-fit` in the order of
starts: earlier buffers that overlap in time are exactly those that live at the start. At equal times, frees come first.
"""

from __future__ import annotations

from remat.plugin import Buffers, Context, LayoutProposal
from remat_algorithms.layout.best_fit import best_fit, concluded
from remat_algorithms.layout.live_bytes import arena_bound


def solve(buffers: Buffers, options: None, context: Context) -> LayoutProposal:
    """Place buffers in the order of their starts."""
    return concluded(buffers, best_fit(buffers, "start"), arena_bound(buffers))
