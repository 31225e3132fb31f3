"""Calls of another algorithm, for a starting point or instead of the algorithm's search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remat.plugin import Algorithm, Context, OptionError, Problem, Proposal, check_reach, make_options


def asked(
    entry: Algorithm,
    problem: Problem,
    context: Context,
    given: Mapping[str, Any] | None = None,
    *,
    share: float = 0.3,
) -> Proposal | None:
    """Return the proposal of an algorithm; None if it refuses the instance or is not installed.

    The call discards the algorithm's reports. The algorithm ends no later than the context.

    Parameters
    ----------
    entry : Algorithm
    problem : Problem
    context : Context
        Context of the calling algorithm.
    given : mapping, optional
        Options; default: the algorithm's defaults.
    share : float
        Share of the remaining time.

    Raises
    ------
    remat.OptionError
        If the algorithm has no such options.
    """
    if not entry.is_available():
        return None
    options = make_options(entry, given or {})
    try:
        check_reach(problem, entry)
        proposal: Proposal = entry.load()(problem, options, context.aside(share=share))
    except OptionError:
        return None
    return proposal
