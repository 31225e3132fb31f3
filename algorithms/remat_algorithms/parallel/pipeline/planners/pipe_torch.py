"""Pipe-torch's partition: devices of several types, in the order that suits the layers.

Zhan & Zhang 2019, with equally many devices for all stages. The objective is the largest time of a stage with all its
transfers. The choices are the layers of each device and the sequence of device classes, where a class has one type and
one memory size (see `device_classes`). The number of devices minimises that time; ties prefer fewer devices. Memory as
in 1F1B. O(product of (devices of a class + 1) x classes x layers^2) array operations.
"""

from __future__ import annotations

from remat.plugin import Context, Orders, Problem, Proposal
from remat_algorithms.parallel.pipeline.planners.device_classes import best_order
from remat_algorithms.parallel.pipeline.planners.planner_input import Site, StageOptions, planned, run_1f1b
from remat_algorithms.parallel.pipeline.planners.stage_measures import least_largest, serial


def solve(problem: Problem, options: StageOptions, context: Context) -> Proposal:
    """Order the devices, cut for the minimum largest time of a stage with its transfers, and run 1F1B."""

    def plan(site: Site) -> Orders | None:
        found = best_order(site.line(), site.classes(), site.hop, site.depths(options))
        if found is None:
            return None
        order = found[1]
        cut = least_largest(site.line(order), serial)
        assert cut is not None, "a result of the table of counts fits"
        return run_1f1b(site, cut[1], order)

    return planned(problem, plan, options)
