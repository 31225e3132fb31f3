"""Asking another algorithm of the zoo: for a start, or for what it would do in one's place."""

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
    """Return what an algorithm proposes; None where it refuses the instance, or is not installed.

    What it reports on the way stays here, and it ends with the context, or before.

    Parameters
    ----------
    entry : Algorithm
    problem : Problem
    context : Context
        Of the one that asks.
    given : mapping, optional
        Options; default: its own defaults.
    share : float
        Of the time that is left.

    Raises
    ------
    remat.OptionError
        If it has no such options.
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
