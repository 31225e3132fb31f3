"""What the programs of moments prove."""

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
"""Moments that are looked at, each by itself."""

LARGE = 4
"""Moments at large runs beside them, for all orders."""

TOGETHER = 3
"""Moments of one program, at most."""

LISTED = "schedules in the reference order"
"""Name of the class of schedules whose first runs keep the listed order."""

WORK = 5.0
"""Most work on a program, in the solver's units."""


def transfers_pay(setting: Setting, best: Best) -> bool:
    """Whether it is proved that no schedule without transfers is quicker than the best one."""
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

    Each takes about as long as a linear program with a few columns a value.
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
