"""Test `--live`, the display of a running solve."""

from __future__ import annotations

import remat
from remat.cli.live import LATEST, LiveView
from remat.plugin.context import Context, Progress
from remat.plugin.proposal import ALL_SCHEDULES
from remat.solving.problem_setup import make_problem
from remat.units import Units
from tests.cli.helpers import CHAIN, Run

UNITS = Units("unit", "unit")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(view: LiveView) -> str:
    return "\n".join(view.lines())


def test_what_a_view_shows() -> None:
    clock = Clock()
    view = LiveView("solving tiny", UNITS, None, 60.0, clock)
    assert shown(view) == "solving tiny: 0 s of at most 60 s\nbest -   bound -   gap -"
    view.listen(Progress(1.5, 20, None, "", "one"))
    view.listen(Progress(2.0, 20, 15, "", "two"))
    view.listen(Progress(2.5, 20, 15, "still here", "two"))
    clock.now = 3.25
    text = shown(view)
    assert "solving tiny: 3.2 s" in text
    assert "best 20   bound 15   gap 25 %" in text
    assert text.count("\n     1.5 s") == text.count("\n       2 s") == 1
    assert "2.5 s" not in text  # nothing new
    for k in range(30):
        view.listen(Progress(3.0 + k, 19 - k / 100, 15, "", "two"))
    assert sum("two" in line for line in view.lines()) == LATEST


def test_the_memory_of_the_best_schedule() -> None:
    result = remat.solve(CHAIN, algorithm="keep-all")
    problem = make_problem(remat.load(CHAIN), budget=40)
    clock = Clock()
    view = LiveView("solving", UNITS, problem, None, clock)
    context = Context(listener=view.listen)
    assert result.columns is not None
    context.report(result.columns, makespan=result.makespan)
    assert f"memory of the best schedule: peak {result.peak_memory['memory']} of 40" in shown(view)
    assert "█" in shown(view)
    context.report(bound=5, scope=ALL_SCHEDULES)
    assert "bound 5" in shown(view)
    # A schedule of another problem gets no picture.
    other = LiveView("solving", UNITS, make_problem(remat.load(remat.example("lecture"))), None, clock)
    Context(listener=other.listen).report(result.columns, makespan=10)
    assert "best schedule" not in shown(other)
    # A history does not hold the schedules either.
    assert all(report.steps is None for report in context.history)


def test_without_a_terminal(run: Run, tiny: str) -> None:
    found = run("solve", tiny, "-b", "22", "-a", "chain-best", "--live")
    assert found.code == 0
    assert "--live needs a terminal" in found.err
    assert "makespan" in found.out
