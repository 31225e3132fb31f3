"""Common refusals of chain algorithms for unsupported features."""

from __future__ import annotations

from remat.plugin import OptionError, Problem


def refuse_alternatives(problem: Problem, name: str) -> None:
    """Refuse a chain with forwards other than F and Fe.

    Raises
    ------
    remat.OptionError
    """
    chain = problem.chain
    if len(problem.graph.tasks) != (3 if chain.saves else 2) * chain.length + 1:
        raise OptionError(f"{name!r} supports one saving forward per stage; use rotor", argument="algorithm")
