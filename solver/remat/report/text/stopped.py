"""Why a search ended that no limit stopped and that proved nothing, and what is left to try."""

from __future__ import annotations

from collections.abc import Iterator

from remat.messages import listing
from remat.plugin.proposal import Status, Termination, Untried
from remat.solving.hints import PORTFOLIO
from remat.solving.result import Result


def stopped_lines(result: Result) -> Iterator[tuple[str, str]]:
    """Say why such a search ended; the status names limits and proofs."""
    if result.report is None or result.status is not Status.FEASIBLE or not result.asked:
        return
    if result.optimal_within is not None or result.termination is not Termination.COMPLETED:
        return
    if result.asked == PORTFOLIO:
        more = _untried(result.untried) if result.default_limit is not None else ""
        yield "stopped", f"all algorithms that suit the instance have ended, without a proof{more}"
    else:
        yield "stopped", f"{result.asked} has ended, without a proof; algorithm auto asks others, too"


def _untried(left: Untried) -> str:
    """Say what a time limit would add; empty if nothing is left to try."""
    longer = [f"longer searches of {listing(left.longer)}"] if left.longer else []
    count = len(left.others)
    others = [f"{count} {'algorithm' if count == 1 else 'algorithms'} for other instances"] if count else []
    return f"; with a time limit, auto also runs {' and '.join(longer + others)}" if longer + others else ""
