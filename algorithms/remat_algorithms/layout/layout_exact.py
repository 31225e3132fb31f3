"""`layout-exact`: a layout that fits the capacity, or the smallest arena, by search; with proof.

A *section* is a time at which a largest set of buffers lives. Each section has a floor, below which all is decided. A
*valley* is a run of sections with one floor whose neighbours are higher. What starts at that floor lies within the
valley, so valleys are decided independently, wherever the fewest choices are. In a section of a valley either one of
the buffers starts at the floor, or there is a gap up to the top of a buffer that does not live in that section.

The facts and bounds are those of Moffitt 2023, "MiniMalloc: a lightweight memory allocator for hardware-accelerated
machine learning" (ASPLOS); the branching is another one:

- *Canonical layouts*: every buffer lies at address 0 or on another one, since any layout can be pushed down.
- *Section bound*: a floor, and the bytes that are left to be placed above it, exceed the capacity.
- *Section inference*: no floor is lower than the least offset of the buffers that are left in the section, and no
  buffer's least offset is lower than the floors of its life. Both are raised until nothing changes.
- *Decomposition*: what no remaining buffer connects is solved part by part, at any depth; if a part has no solution,
  the decisions within the others are not tried again.
- *Dominance*: a buffer that lives through exactly a valley comes first in it, or lies above its lower wall: if it lay
  between, it could change places with all that is below it, and no sum of area times offset would be larger. Of buffers
  with equal lives and sizes the first one lies lowest.

Restarts with other orders find layouts; one run that never gives up proves that there are none (`floors`).
Worst-case exponential. Groups of buffers (in-place outputs, values moved in parts) are enclosed in rectangles for the
search, so nothing is proved of them but by the bound.
"""

from __future__ import annotations

from pydantic import Field

from remat.plugin import Buffers, Context, LayoutProposal, Options
from remat_algorithms.layout.arena import smallest_arena


class LayoutExactOptions(Options):
    """Options of `layout-exact`."""

    work: int | None = Field(None, ge=1, description="units of work, of about a nanosecond, after which to stop")


def solve(buffers: Buffers, options: LayoutExactOptions, context: Context) -> LayoutProposal:
    """Search until a layout fits, or the arena is proved to be the smallest."""
    return smallest_arena(buffers, context, work=options.work, greedy=False)
