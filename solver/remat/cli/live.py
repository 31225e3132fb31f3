"""`remat solve --live`: progress of a long solve.

The view shows the best makespan, the bound and the gap at the top. The latest better schedules and bounds follow. The
bottom shows the memory over time of the best known schedule, placed and measured like the final answer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from remat.errors import RematError
from remat.messages import printable
from remat.report.text.schedule_view import COLUMNS, profile_lines
from remat.units import Number, Units, format_budget, format_time

if TYPE_CHECKING:
    from rich.console import RenderableType

    from remat.plugin.context import Progress
    from remat.plugin.problem import Problem
    from remat.schedule.steps import Steps

LATEST = 8
"""Number of better schedules and bounds in the list."""

MOST_STEPS = 200_000
"""The memory of schedules with more steps is not drawn during the solve."""

SHARE = 0.02
"""Largest share of the time for measuring, which delays the solver."""


class LiveView:
    """View of a solve; its `listen` receives every better schedule and bound.

    Parameters
    ----------
    what : str
        Description of the solve.
    units : Units
    problem : Problem or None
        The problem; None if memory cannot be shown (a question that solves several problems).
    limit : float or None
        Seconds after which the solve ends.
    clock : callable
        Seconds.
    """

    def __init__(
        self,
        what: str,
        units: Units,
        problem: Problem | None,
        limit: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._units, self._problem, self._limit, self._clock = what, units, problem, limit, clock
        self._began = clock()
        self._latest: deque[Progress] = deque(maxlen=LATEST)
        self._known: tuple[Number | None, Number | None] = (None, None)
        self._memory: list[str] = []
        self._waiting: Steps | None = None
        self._not_before = 0.0

    def listen(self, report: Progress) -> None:
        """Record a progress message."""
        now = (report.makespan, report.bound)
        if now != self._known:
            self._known = now
            self._latest.append(report)
        if report.steps is not None:
            self._waiting = report.steps

    def _measure(self) -> None:
        """Measure the latest schedule, if due; called by the drawing thread while the solver runs."""
        steps, began = self._waiting, self._clock()
        if steps is None or self._problem is None or began < self._not_before:
            return
        self._waiting = None
        self._memory = self._measured(steps)
        self._not_before = self._clock() + (self._clock() - began) / SHARE

    def _measured(self, steps: Steps) -> list[str]:
        """Return the memory over time of a schedule as lines of text; empty if it cannot be measured."""
        from remat.placement import Unplaceable, place
        from remat.plugin.problem import budget_memory
        from remat.verifier import check

        assert self._problem is not None
        if len(steps) > MOST_STEPS:
            return []
        graph, machine = self._problem.graph, self._problem.machine
        try:
            found = place(graph, machine, steps) if steps.start is None else steps
            if isinstance(found, Unplaceable) or found.start is None:
                return []
            report = check(graph, machine, steps.placed(found.start))
        except (RematError, ValueError, IndexError):  # a schedule of a graph other than the problem's
            return []
        if not report.ok:
            return []
        memory = machine.memories[budget_memory(self._problem.instance, machine)]
        name, capacity = memory.name, memory.capacity
        peak = report.peaks[name].size
        of = "" if capacity is None else f" of {format_budget(capacity, self._units)}"
        top = max(peak, capacity if capacity is not None and capacity < 4 * max(1, peak) else 0)
        head = f"{printable(name)} of the best schedule: peak {format_budget(peak, self._units)}{of}"
        lines = profile_lines(report.profiles[name], float(report.makespan), top)
        return [head, *lines, f"0{format_time(report.makespan, self._units):>{COLUMNS - 1}}"]

    def lines(self) -> Iterator[str]:
        """Yield the headlines, the latest messages, and the memory of the best schedule."""
        self._measure()
        limit = "" if self._limit is None else f" of at most {format_time(self._limit)}"
        yield f"{self._what}: {format_time(round(self._clock() - self._began, 1))}{limit}"
        makespan, bound = self._known
        gap = self._latest[-1].gap if self._latest else None
        parts = [f"best {'-' if makespan is None else format_time(makespan, self._units)}"]
        parts.append(f"bound {'-' if bound is None else format_time(bound, self._units)}")
        parts.append(f"gap {'-' if gap is None else f'{100 * gap:.3g} %'}")
        yield "   ".join(parts)
        if self._latest:
            yield ""
            yield f"{'after':>10}{'makespan':>16}{'bound':>16}{'gap':>10}  by"
        for report in self._latest:
            seconds = format_time(round(report.seconds, 1))
            figures = [
                "" if value is None else format_time(value, self._units) for value in (report.makespan, report.bound)
            ]
            share = "" if report.gap is None else f"{100 * report.gap:.3g} %"
            yield f"{seconds:>10}{figures[0]:>16}{figures[1]:>16}{share:>10}  {report.source}"
        if self._memory:
            yield ""
            yield from self._memory

    def __rich__(self) -> RenderableType:
        from rich.text import Text

        return Text("\n".join(printable(line) for line in self.lines()), no_wrap=True, overflow="ellipsis")


@contextmanager
def live(view: LiveView, console: Any) -> Iterator[Callable[[Progress], None]]:
    """Show the view, refreshed four times a second, until the block ends; yield its listener."""
    from rich.live import Live

    with Live(view, console=console, refresh_per_second=4, transient=True, redirect_stdout=False):
        yield view.listen
