from __future__ import annotations

import io
import sys

import pytest

from remat.cli.io_session import Session
from remat.cli.main import main
from remat.cli.progress import describe, progress
from remat.plugin.context import Context, Progress
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Proposal
from remat.schedule.steps import StepBuilder
from remat.units import Units
from remat_algorithms.dag.keep_all import solve as keep_all
from tests.cli.helpers import Run, Zoo


@pytest.fixture
def talker(zoo: Zoo) -> str:
    """Return the name of an algorithm that reports progress."""

    def solve(problem: Problem, options: None, context: Context) -> Proposal:
        found = keep_all(problem, None, context)
        context.report(found.steps, makespan=12, bound=10, scope=ALL_SCHEDULES, message="half [way]")
        return found

    zoo("talker", solve)
    return "talker"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_only_for_terminals(run: Run, tiny: str, talker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("solve", tiny, "-a", talker).err == ""
    monkeypatch.setenv("TERM", "xterm")
    for quiet in ([], ["-q"]):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(["solve", tiny, "-a", talker, *quiet]) == 0
        assert ("solving" in terminal.getvalue()) == (not quiet)


def test_progress_without_colour(tiny: str, talker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["solve", tiny, "-a", talker]) == 0
    assert "\x1b[32m" not in terminal.getvalue()


def test_progress_as_lines(run: Run, tiny: str, talker: str) -> None:
    lines = run("solve", tiny, "-a", talker, "-v").err.splitlines()
    assert lines[0] == "remat: loaded chain tiny"
    assert lines[1].endswith("makespan 12, bound 10, gap 16.7 %, half [way]")
    assert lines[2].startswith("remat: talker: optimal")


def test_description_of_progress() -> None:
    assert describe(Progress(1.26, None, None, ""), Units()) == "1.3 s"
    assert describe(Progress(2, 0.5, None, "deep"), Units()) == "2 s, best makespan 500 ms, deep"
    other = Progress(2, 0.5, None, "", "rotor", author="keep-all")
    assert describe(other, Units()) == "2 s, best makespan 500 ms by keep-all, running rotor"


def test_the_best_schedule_keeps_its_author_while_others_run() -> None:
    seen: list[Progress] = []
    context = Context(listener=seen.append)
    steps = StepBuilder().build()
    for name, makespan in (("first", 12), ("equal", 12), ("slower", 20), ("faster", 10)):
        context.part(name).report(steps, makespan=makespan)
        context.part(name).report(bound=makespan / 2, scope=ALL_SCHEDULES)
    told = [(report.source, report.author, report.makespan) for report in seen[1::2]]
    assert told == [("first", "first", 12), ("equal", "first", 12), ("slower", "first", 12), ("faster", "faster", 10)]


def test_verbose_lines_are_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session()
    session.verbose = True
    with progress(session, Units(), "solving") as listener:
        assert listener is not None
        for seconds, bound in ((1, 5), (2, 5), (3, 6)):
            listener(Progress(seconds, None, bound, ""))
    assert [line.partition(", ")[2] for line in capsys.readouterr().err.splitlines()] == ["bound 5 s", "bound 6 s"]
