"""Which trees are for which algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_algorithms.kit.applicability import one_processor

if TYPE_CHECKING:
    from remat.plugin import Problem


def alone(problem: Problem) -> bool:
    """Whether one processor works in one memory."""
    return one_processor(problem) and not problem.machine.links
