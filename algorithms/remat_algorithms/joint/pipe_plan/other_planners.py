"""The planners of stages whose plans `pipe-plan` compares, and whose cuts it continues from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from remat.plugin import Context, OptionError, Problem, Proposal, Stage
from remat_algorithms.parallel.pipeline.planners import (
    chimera_plan,
    dapple_plan,
    ftpipe,
    hetpipe,
    pipe_torch,
    pipedream,
    varuna,
)
from remat_algorithms.parallel.pipeline.planners.planner_input import StageOptions

BLOCKS = (2, 4)
"""Blocks per device whose cuts the search continues from at every budget."""

STEP, LIMITS = 1.15, 2
"""Factor between the limits below those of the devices for which cuts are sought, and their number."""


def planners_of(problem: Problem, context: Context) -> Iterator[Callable[[], Proposal]]:
    """Yield the other planners, each as a callable."""
    plain = (pipedream.solve_dp, pipedream.solve_2bw, varuna.solve, hetpipe.solve, pipe_torch.solve)
    yield lambda: ftpipe.solve(problem, ftpipe.BlockOptions(), context.aside())
    yield lambda: dapple_plan.solve(problem, dapple_plan.JudgedOptions(), context.aside())
    for ask in (*plain, chimera_plan.solve):
        yield partial(ask, problem, StageOptions(), context.aside())


def block_cuts(problem: Problem, context: Context) -> Iterator[tuple[Stage, ...]]:
    """Yield stages of `ftpipe` for several sizes of blocks without limits, and for limits below those of the devices.

    The limits are powers of `STEP`, which similar budgets share. With its own limits alone, `ftpipe` may choose other
    blocks at a slightly larger budget, from which the search finds slower plans.
    """
    capacity = {memory.name: memory.capacity for memory in problem.machine.memories}
    asked = [(dict.fromkeys(capacity), blocks) for blocks in BLOCKS]
    if None not in capacity.values():
        most = max(size or 0 for size in capacity.values())
        power = math.ceil(math.log(max(most, 1), STEP)) - 1
        asked += [
            ({name: min(size or 0, int(STEP**k)) for name, size in capacity.items()}, BLOCKS[-1])
            for k in range(power, max(power - LIMITS, 0), -1)
        ]
    for capacities, blocks in asked:
        with suppress(OptionError):
            limited = problem.with_capacities(capacities)
            proposal = ftpipe.solve(limited, ftpipe.BlockOptions(blocks=blocks), context.aside())
            if proposal.orders is not None:
                yield proposal.orders.stages
