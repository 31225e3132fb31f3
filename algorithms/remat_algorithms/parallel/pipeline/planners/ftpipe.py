"""FTPipe's planner: small blocks of layers, assigned greedily; the stages of a device need not be adjacent.

Eliad et al. 2021 ("Mixed-pipe"), for layers in a row. Neighbouring layers are merged greedily into a few blocks per
device. The longest blocks are assigned first, each to the device that would finish first. Adjacent blocks on one device
form one stage (see `block_merging`). Of several numbers of blocks, the one with the fastest simulation is chosen. The
schedule is 1F1B as in `varuna`, with backwards first.

A stage holds at most as many micro-batches as there are stages from it to the end, and fewer if its device has too
little memory. O(blocks x devices) for each number of blocks, and the simulations.
"""

from __future__ import annotations

import itertools

from pydantic import Field

from remat.plugin import Context, Orders, Problem, Proposal
from remat_algorithms.parallel.pipeline.planners.block_merging import dealt, joined, merged, shares
from remat_algorithms.parallel.pipeline.planners.planner_input import MOST_SIMULATED, SharedOptions, Site, planned
from remat_algorithms.parallel.pipeline.planners.simulation import Lists, makespan, when_ready


class BlockOptions(SharedOptions):
    """Options of `ftpipe`."""

    blocks: int = Field(
        default=4, ge=1, le=64, description="maximum number of blocks per device into which layers are merged"
    )


def solve(problem: Problem, options: BlockOptions, context: Context) -> Proposal:
    """Assign blocks of layers to devices, and run backwards as soon as they are ready."""

    def plan(site: Site) -> Orders | None:
        positions = [site.position(device) for device in range(site.devices)]
        batches, length = site.instance.micro_batches, site.row.length
        work = site.least_work()
        crossing = site.hop(0, 1).both[1:-1].tolist() if site.devices > 1 else [0] * (length - 1)
        counts = sorted({min(length, site.devices * each) for each in range(1, options.blocks + 1)})
        reach = [max(int(position.stop[first]) for position in positions) for first in range(length)]
        best: tuple[float, list[int], list[int], Lists] | None = None
        left = MOST_SIMULATED
        # Single layers if no blocks fit.
        for count in [*counts, length]:
            if count > counts[-1] and best is not None:
                break
            fine = merged(work, crossing, reach, count)
            homes = dealt(site.row, positions, fine)
            if homes is None:
                continue
            cuts, devices = joined(fine, homes)
            left -= 2 * batches * len(devices)
            if best is not None and left < 0:
                break
            held = [site.row.held(first, end) for first, end in itertools.pairwise(cuts)]
            free = list(site.room)
            for first, end, device in zip(cuts[:-1], cuts[1:], devices, strict=True):
                room = free[device]
                free[device] = None if room is None else room - site.row.kept(first, end)
            pipe = site.pipe(cuts, devices)
            lists = when_ready(pipe, shares(held, devices, free, batches))
            time = float(makespan(pipe, lists))
            if best is None or time < best[0]:
                best = time, cuts, devices, lists
        return None if best is None else site.orders(*best[1:])

    return planned(problem, plan, options)
