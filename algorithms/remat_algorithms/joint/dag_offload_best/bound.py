"""What the programs of moments prove."""

from __future__ import annotations

import math

from remat.plugin import ALL_SCHEDULES
from remat_algorithms.dag.moments.bounds import Setting as Programs
from remat_algorithms.dag.moments.solving import Effort
from remat_algorithms.joint.dag_offload_best.best import Best
from remat_algorithms.joint.dag_offload_best.setting import Setting

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


def bound(setting: Setting, best: Best) -> None:
    """Take over the bounds of the fullest moments, for all orders and for the listed one.

    Each takes about as long as a linear program with a few columns a value.
    """
    effort = Effort(relaxed_work=WORK, whole_work=0)
    for listed, scope in ((False, ALL_SCHEDULES), (True, LISTED)):
        programs = Programs.of(setting.problem, listed=listed)
        if programs is None:
            continue
        moments = programs.fullest(MOMENTS)
        large = [] if listed else [moment for moment in programs.largest(LARGE) if moment not in moments]
        asked = [[moment] for moment in [*moments, *large]] + (
            [moments[:TOGETHER]] if listed and len(moments) > 1 else []
        )
        for row in asked:
            if best.done:
                return
            answer = programs.ask(row, effort, stopped=lambda: best.done)
            value = programs.makespan(answer.bound)
            if not math.isinf(value):
                best.claim(value, scope, "dag-offload-best")
