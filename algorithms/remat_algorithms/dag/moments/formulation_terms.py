"""Construction of the complete program of some moments, with its transfer rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remat_algorithms.dag.moments.before_first_run import Order
from remat_algorithms.dag.moments.formulation import MomentProgram
from remat_algorithms.dag.moments.secondary_memory import Behind
from remat_algorithms.dag.moments.transfer_rows import add_transfers


def build(
    order: Order,
    budget: int,
    moments: Sequence[int],
    behind: Behind | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> MomentProgram | None:
    """Build the program of some moments; None if `stopped` returns true, which it checks at each moment.

    Parameters
    ----------
    order : Order
        The class of schedules.
    budget : int
    moments : sequence of int
        Tasks that must run, each before the next in every schedule of the class.
    behind : Behind, optional
        Secondary memories, to which values may be offloaded.
    stopped : callable, optional
    """
    program = MomentProgram(order.facts, order, budget, list(moments), behind)
    if not program.add(stopped):
        return None
    if behind is not None:
        add_transfers(program, behind)
    return program
