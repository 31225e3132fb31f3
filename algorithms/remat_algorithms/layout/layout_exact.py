"""`layout-exact`: find a layout that fits the capacity, or the smallest arena, by search; with proof.

A *section* is a time at which a maximal set of buffers lives. Each section has a floor, below which all is decided. A
*valley* is a run of sections with equal floors whose neighbours are higher. A buffer that starts at that floor lies
within the valley. Valleys are therefore decided independently, first the one with the fewest choices. In a section of a
valley, either one of the buffers starts at the floor, or a gap reaches up to the top of a buffer that does not live in
that section.

The facts and bounds are those of Moffitt 2023, "MiniMalloc: a lightweight memory allocator for hardware-accelerated
machine learning" (ASPLOS). The branching differs:

- *Canonical layouts*: every buffer is at address 0 or on another buffer, since any layout can be pushed down.
- *Section bound*: a floor plus the bytes that remain to be placed above it must not exceed the capacity.
- *Section inference*: a floor is at least the smallest offset of the remaining buffers of its section. A buffer's
  smallest offset is at least the floors during its lifetime. Both are raised until neither changes.
- *Decomposition*: parts that no remaining buffer connects are solved separately, at any depth. If a part has no
  solution, the decisions within the other parts are not tried again.
- *Dominance*: a buffer whose lifetime is exactly a valley is placed there first, or lies above the valley's lower wall.
  Between them, it could change places with all buffers below it without increasing any sum of area times offset. Of
  buffers with equal lifetimes and sizes, the first lies lowest.

Restarts with other orders find layouts. One run without a limit proves infeasibility
(`remat_algorithms.layout.section_floors`). Where short runs are in vain, other searches help to find layouts
(`remat_algorithms.layout.reinsertion`, `remat_algorithms.layout.ejection`, `remat_algorithms.layout.beam`). The worst
case is exponential. Groups of buffers (in-place outputs, values moved in parts) are enclosed in rectangles for the
search. For groups, only the bound proves optimality.
"""

from __future__ import annotations

from pydantic import Field

from remat.plugin import Buffers, Context, LayoutProposal, Options
from remat_algorithms.layout.arena import smallest_arena


class LayoutExactOptions(Options):
    """Options of `layout-exact`."""

    work: int | None = Field(None, ge=1, description="work limit, in units of about 1 ns; default: no limit")


def solve(buffers: Buffers, options: LayoutExactOptions, context: Context) -> LayoutProposal:
    """Search until a layout fits, or until the arena is proved to be minimal."""
    return smallest_arena(buffers, context, work=options.work, greedy=False)
