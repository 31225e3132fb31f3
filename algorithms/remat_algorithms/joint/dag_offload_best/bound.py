"""Bounds from moment programs."""

from __future__ import annotations

import math
from dataclasses import replace

from remat.plugin import ALL_SCHEDULES
from remat_algorithms.dag.moments.bounds import Setting as Programs
from remat_algorithms.dag.moments.program_solution import Effort
from remat_algorithms.joint.dag_offload_best.incumbent import Best
from remat_algorithms.joint.dag_offload_best.model import Setting
from remat_algorithms.offload.swaps.gap_selection import quicker

MOMENTS = 4
"""Number of moments with separate programs."""

LARGE = 4
"""Number of additional moments at large runs, for all orders."""

TOGETHER = 3
"""Maximum number of moments in one program."""

LISTED = "schedules in the reference order"
"""Name of the class of schedules whose first runs keep the listed order."""

WORK = 5.0
"""Work limit of a program, in the solver's units."""


def transfers_pay(setting: Setting, best: Best) -> bool:
    """Whether a proof exists that no schedule without transfers is faster than the best one."""
    programs = Programs.of(setting.problem, listed=False)
    if programs is None:
        return False
    effort, alone = Effort(relaxed_work=WORK, whole_work=0), replace(programs, behind=None)
    for moment in alone.fullest(MOMENTS):
        if best.context.stopped:
            return False
        if not quicker(alone.makespan(alone.ask([moment], effort, stopped=lambda: best.done).bound), best.makespan):
            return True
    return False


def bound(setting: Setting, best: Best, *, listed: bool) -> None:
    """Take over the bounds of the fullest moments, for all orders or for the listed one.

    Each bound takes about as long as a linear program with a few columns per value.
    """
    effort = Effort(relaxed_work=WORK, whole_work=0)
    programs = None if best.done else Programs.of(setting.problem, listed=listed)
    if programs is None:
        return
    moments = programs.fullest(MOMENTS)
    large = [] if listed else [moment for moment in programs.largest(LARGE) if moment not in moments]
    asked = [[moment] for moment in [*moments, *large]] + ([moments[:TOGETHER]] if listed and len(moments) > 1 else [])
    for row in asked:
        if best.done:
            return
        answer = programs.ask(row, effort, stopped=lambda: best.done)
        value = programs.makespan(answer.bound)
        if not math.isinf(value):
            best.claim(value, LISTED if listed else ALL_SCHEDULES, "dag-offload-best")
