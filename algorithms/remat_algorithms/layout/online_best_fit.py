"""`online-best-fit`: an allocator that learns of each buffer when it starts, and never moves one.

Each buffer goes into the smallest gap between those that live at its start; of equal ones into the lowest; what fits
nowhere goes on top. Neither ends nor later buffers are known. This is `best-fit` in the order of starts, since those
placed before that overlap in time are those that live at the start. At one instant the frees come first.
"""

from __future__ import annotations

from remat.plugin import Buffers, Context, LayoutProposal
from remat_algorithms.layout.best_fit import best_fit, concluded
from remat_algorithms.layout.live_bytes import arena_bound


def solve(buffers: Buffers, options: None, context: Context) -> LayoutProposal:
    """Place buffers in the order of their starts."""
    return concluded(buffers, best_fit(buffers, "start"), arena_bound(buffers))
