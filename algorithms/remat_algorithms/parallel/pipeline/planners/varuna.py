"""Varuna's planner: every number of devices is cut evenly and simulated, with backwards as soon as they are ready.

Athlur et al. 2022: for each depth, the cut minimises the time of the slowest stage, and the step is simulated. Widths
and micro-batch sizes are tried around this. A free device runs a backward if one is ready, else a forward if its memory
suffices. The fastest depth wins. In the paper, all stages except the last recompute just before each backward. Here, no
device does, and a device holds as many micro-batches as its memory allows.

Devices are used in order, starting with the first. O(devices x layers^2) array operations, times the number of devices
if these differ, and a simulation of each depth whose latency is not already too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from remat.plugin import Context, Orders, Problem, Proposal
from remat_algorithms.parallel.pipeline.planners.layer_sums import Line
from remat_algorithms.parallel.pipeline.planners.planner_input import Site, StageOptions, by_simulation, planned
from remat_algorithms.parallel.pipeline.planners.simulation import Lists, makespan, when_ready
from remat_algorithms.parallel.pipeline.planners.stage_measures import compute


def solve(problem: Problem, options: StageOptions, context: Context) -> Proposal:
    """Choose how many devices hold layers by simulation, running backwards as soon as they are ready."""

    def plan(site: Site) -> Orders | None:
        line = site.line()
        # A stage needs memory for one micro-batch, and uses all memory available.
        line = replace(line, positions=tuple(replace(position, flight=1) for position in line.positions))

        def judge(cuts: list[int], best: float) -> tuple[float, Lists] | None:
            pipe = site.pipe(cuts, range(len(cuts) - 1))
            if pipe.latency >= best:
                return None
            lists = when_ready(pipe, room_for(site, line, cuts))
            return float(makespan(pipe, lists)), lists

        found = by_simulation(line, compute, site.depths(options), judge, passing=line.batches)
        return None if found is None else site.orders(found[1], range(len(found[1]) - 1), found[2])

    return planned(problem, plan, options)


def room_for(site: Site, line: Line, cuts: Sequence[int]) -> list[int]:
    """Return how many micro-batches fit in each stage."""
    found: list[int] = []
    for first, end, position in zip(cuts[:-1], cuts[1:], line.positions, strict=False):
        held = site.row.held(first, end)
        most = site.instance.micro_batches
        if position.room is not None and held:
            most = min(most, (position.room - site.row.kept(first, end)) // held)
        found.append(most)
    return found
