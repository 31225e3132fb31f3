"""Conditions on trees, which decide which algorithm applies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_algorithms.kit.applicability import one_processor

if TYPE_CHECKING:
    from remat.plugin import Problem


def alone(problem: Problem) -> bool:
    """Whether the machine has one processor and one memory."""
    return one_processor(problem) and not problem.machine.links
