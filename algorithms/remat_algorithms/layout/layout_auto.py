"""`layout-auto`: the best of the greedy orders, then searches for smaller arenas, with a lower bound.

`best-fit` runs in each of its orders until one reaches the bound (`layout.live_bytes.arena_bound`). Then the search of
`layout-exact` tries the bound, and arenas between the bound and the best known one. Each try has limited work, which
grows while any work is left.
"""

from __future__ import annotations

from pydantic import Field

from remat.plugin import Buffers, Context, LayoutProposal, Options
from remat_algorithms.layout.arena import smallest_arena

WORK = 5_000_000_000


class LayoutAutoOptions(Options):
    """Options of `layout-auto`."""

    work: int = Field(WORK, ge=0, description="units of work, of about a nanosecond, of the search")


def solve(buffers: Buffers, options: LayoutAutoOptions, context: Context) -> LayoutProposal:
    """Return the best layout that the work allows, and the best bound."""
    return smallest_arena(buffers, context, work=options.work)
