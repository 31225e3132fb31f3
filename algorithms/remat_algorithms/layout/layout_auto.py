"""`layout-auto`: the best of the greedy orders, then searches for smaller arenas, with a lower bound.

`best-fit` is asked in each of its orders until one reaches the bound (`layout.live_bytes.arena_bound`).
Then the search of `layout-exact` tries the bound itself, and arenas between the bound and the best one, each with
limited work, which grows as long as some is left. After each round of these, other searches have a share of the work:
reinsertion twice as much as the search of `layout-exact`, ejections and beams a quarter each
(`remat_algorithms.layout.reinsertion`, `remat_algorithms.layout.ejection`, `remat_algorithms.layout.beam`). After some
rounds, a local search over the orders of best-fit has a quarter of the work that is left
(`remat_algorithms.layout.order_search`).
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
