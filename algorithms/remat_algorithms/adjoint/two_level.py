"""`two-level`: a disk checkpoint every few steps on the first sweep, Revolve inside each block.

Pringle, Jones, Goswami, Narayanan, Goldberg 2016, "Providing the ARCHER community with adjoint modelling tools for
high-performance oceanographic and cryospheric computation". The first state of a block stays on disk until the
block is reversed and counts as one of Revolve's slots there, beside the s slots of the first level. With blocks of
b_1, .., b_B steps the advances are n - b_B + sum of t(b_i, s+1): the first sweep ends where the last block begins.
"""

from __future__ import annotations

from math import isqrt

from pydantic import Field

from remat.context import Context
from remat.errors import OptionError
from remat.options import Options
from remat.problem import Problem, Proposal
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve import advances
from remat_algorithms.adjoint.uniform import TimeLoop, reverse_block
from remat_algorithms.emit import check_length


class TwoLevelOptions(Options):
    """Options of `two-level`."""

    period: int | None = Field(
        None,
        ge=1,
        description="steps between disk checkpoints (default: about sqrt(steps), or more if the disk is small)",
    )


def solve(problem: Problem, options: TwoLevelOptions, context: Context) -> Proposal:
    """Solve an adjoint of equal steps on its first two levels.

    Parameters
    ----------
    problem : Problem
        Of kind `adjoint`, with two storage levels; further ones are not used.
    options : TwoLevelOptions
    context : Context
        Not used.

    Returns
    -------
    Proposal

    Raises
    ------
    remat.OptionError
        For unequal steps, asynchronous levels, or a period that needs more disk checkpoints than fit.

    Notes
    -----
    O(steps of the schedule) time.
    """
    loop = TimeLoop.of(problem, "two-level", least_levels=2)
    memory, disk = loop.levels[:2]
    n = loop.steps
    # A last block of one step needs no checkpoint: its state is live when the first sweep ends.
    smallest = max(1, -(-(n - 1) // max(disk.slots, 1)))
    period = max(smallest, isqrt(n)) if options.period is None else min(options.period, n)
    if period < smallest:
        raise OptionError(
            f"--option period: blocks of {period} steps need {-(-(n - 1) // period)} checkpoints in {disk.name!r}, "
            f"which holds {disk.slots}; the least period is {smallest}"
        )
    refused = loop.infeasible("schedules with periodic disk checkpoints", (disk,))
    if refused is not None:
        return refused
    starts = range(0, n, period)
    last = n - starts[-1]
    full = advances(period, memory.slots + 1)
    runs = n - last + full * (len(starts) - 1) + advances(last, memory.slots + 1)
    check_length(runs + n, f"two-level with blocks of {period}")
    plan = Plan()
    given = loop.discard_given(plan, but=1)
    levels = [disk.memory, *[memory.memory] * memory.slots]
    for start in starts[:-1]:
        if start or not given:
            plan.write(start, disk.memory)
        plan.advance(start, start + period)
    reverse_block(plan, starts[-1], last, levels, given=given and starts[-1] == 0)
    for start in reversed(starts[:-1]):
        reverse_block(plan, start, period, levels, stored=True)
    return Proposal(steps=plan.steps(problem), makespan=loop.cost(plan))
