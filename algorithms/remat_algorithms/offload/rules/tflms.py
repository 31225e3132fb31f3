"""`tflms`: whatever is not used for long leaves at once, and comes back a few runs ahead.

After Le, Imai, Negishi, Kawachiya 2018, "TFLMS: large model support in TensorFlow by graph rewriting", at the level of
its rule: edges of the graph whose two ends lie more than a threshold of runs apart are rewritten, the longest first.
The copy out follows the run before the edge; the copy back starts with the run that lies `ahead` runs before its end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, rule_proposal
from remat_algorithms.offload.swaps.routes import required_routes
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap


class TflmsOptions(Options):
    """Options of `tflms`."""

    threshold: int | None = Field(
        None, ge=1, description="runs; only longer gaps leave. Default: the most with which the budget holds"
    )
    ahead: int = Field(
        1, ge=0, description="runs before its use with which a value comes back; 0: as early as it is in nobody's way"
    )
    tensors: int | None = Field(None, ge=0, description="most gaps that leave, the longest first; default: no limit")


def solve(problem: Problem, options: TflmsOptions, context: Context) -> Proposal:
    """Offload all gaps longer than a threshold.

    Takes instances of kind `chain` or `dag`, on a machine with a way out of the processor's memory and back. Gives the
    schedule of the given threshold, or of the largest one that fits.

    Raises
    ------
    remat.OptionError
        If the machine has no way out, or none back.

    Notes
    -----
    O((runs + gaps) log gaps).
    """
    order = Order.of(problem)
    choice = Choice(problem, order, required_routes(problem, "tflms"))
    spans = choice.before - choice.after
    gaps = choice.candidates
    # A value that would come back with the first run of its gap stays.
    gaps = gaps[spans[gaps] > options.ahead + 1] if options.ahead else gaps
    longest = gaps[np.argsort(-spans[gaps], kind="stable")][: options.tensors]
    if options.threshold is not None:
        counts = [int(np.count_nonzero(spans[longest] > options.threshold))]
    else:
        # One gap more at a threshold just below each length; spans descend.
        counts = [0, *(np.flatnonzero(np.diff(spans[longest])) + 1).tolist(), len(longest)]
    plan, swaps = _first_fitting(choice, longest.tolist(), counts, options.ahead, lambda: context.stopped)
    if swaps is None:
        return nothing_fits(choice, "tflms")
    return rule_proposal(order, order.program(swaps), plan, "tflms", context)


def _first_fitting(
    choice: Choice, longest: list[int], counts: list[int], ahead: int, stopped: Callable[[], bool]
) -> tuple[Plan | None, list[Swap] | None]:
    """Return the plan of the fewest gaps that fit, or, without a plan, the swaps that come nearest to it.

    Once `stopped` is true, of more gaps: the fewest that are known to fit.
    """
    # What leaves only ever makes room in the processor's memory, so that the fewest gaps are found by bisection.
    low, high = 0, len(counts) - 1
    while low < high and not stopped():
        middle = (low + high) // 2
        if _fits(choice, _swaps(choice, longest[: counts[middle]], ahead)):
            high = middle
        else:
            low = middle + 1
    low = high
    nearest = _swaps(choice, longest[: counts[low]], ahead)
    if not _fits(choice, nearest):
        return None, nearest
    for count in counts[low:]:
        swaps = _routed(choice, longest[:count], ahead)
        if swaps is None:
            return None, None
        plan = choice.dispatched(swaps)
        if plan is not None:
            return plan, swaps
        nearest = swaps
    return None, nearest


def _fits(choice: Choice, swaps: list[Swap]) -> bool:
    return choice.budget is None or int(choice.order.profile(swaps).max(initial=0)) <= choice.budget


def _routed(choice: Choice, gaps: list[int], ahead: int) -> list[Swap] | None:
    routed = choice.routed(gaps)
    if routed is None:
        return None
    return [Swap(gap=swap.gap, route=swap.route, return_with=_return(choice, swap.gap, ahead)) for swap in routed]


def _swaps(choice: Choice, gaps: list[int], ahead: int) -> list[Swap]:
    return [Swap(gap=gap, route=choice.routes[0], return_with=_return(choice, gap, ahead)) for gap in gaps]


def _return(choice: Choice, gap: int, ahead: int) -> int:
    """Return the run with which a gap's value comes back."""
    return int(choice.before[gap]) - ahead if ahead else -1
