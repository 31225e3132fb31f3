"""`layout-auto`: the best of the greedy orders, then searches for smaller arenas, with a lower bound.

`best-fit` runs in each of its orders until one reaches the bound (`layout.live_bytes.arena_bound`). Then the search of
`layout-exact` tries the bound itself, and arenas between the bound and the best one. Each search has limited work,
which grows from round to round. After each round, beam searches get half of its work, or all of it if they find layouts
(`remat_algorithms.layout.beam`). After some rounds, a local search over the orders of best-fit gets a quarter of the
work (`remat_algorithms.layout.order_search`).
"""

from __future__ import annotations

from pydantic import Field

from remat.plugin import Buffers, Context, LayoutProposal, Options
from remat_algorithms.layout.arena import smallest_arena

WORK = 7_000_000_000


class LayoutAutoOptions(Options):
    """Options of `layout-auto`."""

    work: int = Field(WORK, ge=0, description="work limit of the search, in units of about 1 ns")


def solve(buffers: Buffers, options: LayoutAutoOptions, context: Context) -> LayoutProposal:
    """Return the best layout that the work allows, and the best bound."""
    return smallest_arena(buffers, context, work=options.work)
