"""Test the output files of `remat solve`, and its refusals before solving."""

from __future__ import annotations

import json
import os
import stat
from importlib import util
from pathlib import Path

import pytest

from remat import documents
from remat.cli.io_session import ExitCode
from remat.plugin.context import Context
from remat.plugin.problem import Problem
from remat.plugin.proposal import Proposal
from tests.cli.helpers import Run, Save, Zoo


@pytest.fixture
def never(zoo: Zoo) -> str:
    """Return the name of an algorithm that must not be reached."""

    def solve(problem: Problem, options: None, context: Context) -> Proposal:
        raise AssertionError("solved before the outputs were checked")

    zoo("never", solve)
    return "never"


@pytest.mark.parametrize("option", ["--output", "--plot", "--trace"])
def test_outputs_are_checked_before_solving(run: Run, tiny: str, never: str, tmp_path: Path, option: str) -> None:
    folder = tmp_path / "folder.svg"
    folder.mkdir()
    run("solve", tiny, "-a", never, option, folder).assert_refused(option, "directory")
    run("solve", tiny, "-a", never, option, tmp_path / "none" / "x.svg").assert_refused(option, "no directory")
    run("solve", tiny, "-a", never, option, "/proc/x.svg").assert_refused(option, "cannot write")
    run("solve", tiny, "-a", never, option, f"{tiny}/x.svg").assert_refused(option, "cannot write")


def test_no_output_overwrites_an_input(run: Run, tiny: str, never: str, tmp_path: Path, save: Save) -> None:
    machine = save({"memories": [{"name": "memory"}]}, "machine.json")
    link = tmp_path / "link.json"
    link.symlink_to(tiny)
    run("solve", tiny, "-a", never, "-o", link).assert_refused("--output", "INSTANCE")
    run("solve", tiny, "-a", never, "--machine", machine, "--trace", machine).assert_refused("--trace", "--machine")
    target = tmp_path / "x.json"
    run("solve", tiny, "-a", never, "-o", target, "--trace", target).assert_refused("--trace", "--output")


def test_a_write_that_fails_leaves_the_old_file(
    run: Run, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out" / "schedule.json"
    target.parent.mkdir()
    target.write_text("old")

    def full(source: object, destination: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(documents.os, "replace", full)
    run("solve", tiny, "-a", "keep-all", "-o", target).assert_refused("schedule.json", "No space left on device")
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_a_solve_that_fails_leaves_the_old_file(run: Run, tiny: str, tmp_path: Path, never: str) -> None:
    target = tmp_path / "schedule.json"
    target.write_text("old")
    assert run("solve", tiny, "-a", never, "-o", target).code == ExitCode.INTERNAL
    assert target.read_text() == "old"


def test_links_and_devices_stay_what_they_are(run: Run, tiny: str, tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    assert run("solve", tiny, "-a", "keep-all", "-o", link).code == 0
    assert link.is_symlink()
    assert json.loads(real.read_text())["schema"] == "remat.schedule/1"
    assert run("solve", tiny, "-a", "keep-all", "-o", "/dev/null").code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    run("solve", tiny, "-a", "keep-all", "-o", "/dev/full").assert_refused("/dev/full", "No space left on device")


def test_plots_need_matplotlib(
    run: Run, tiny: str, never: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "matplotlib" else object())
    run("solve", tiny, "-a", never, "--plot", tmp_path / "x.svg").assert_refused("--plot", "remat[plot]")


@pytest.mark.parametrize("name", ["schedule.json", "schedule.json.gz"])
def test_an_answer_without_steps_leaves_the_schedule(run: Run, tiny: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert run("solve", tiny, "-b", 0, "-qo", path).code == ExitCode.INFEASIBLE
    answer = path.read_bytes()  # there was nothing to keep
    assert run("solve", tiny, "-b", 24, "-qo", path).code == 0
    schedule = path.read_bytes()
    outcome = run("solve", tiny, "-b", 0, "-qo", path)
    assert outcome.code == ExitCode.INFEASIBLE
    assert (
        f"'{path}' still holds its previous schedule, because this answer has none (--overwrite replaces it)"
        in outcome.err
    )
    assert path.read_bytes() == schedule
    assert run("solve", tiny, "-b", 0, "-qo", path, "--overwrite").err == ""
    assert len(path.read_bytes()) < len(schedule)
    assert run("solve", tiny, "-b", 0, "-qo", path).err == ""
    assert b'"steps":' not in answer


def test_without_a_schedule_there_is_no_plot(run: Run, tiny: str, tmp_path: Path) -> None:
    target = tmp_path / "x.svg"
    outcome = run("solve", tiny, "-a", "keep-all", "-b", "1", "--plot", target)
    assert outcome.code == 3
    assert outcome.err == "Warning: no schedule to plot or trace\n"
    assert not target.exists()


def test_plot_and_trace_are_written(run: Run, tiny: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot, trace = tmp_path / "x.svg", tmp_path / "trace.json"
    outcome = run("solve", tiny, "-a", "keep-all", "--plot", plot, "--trace", trace)
    assert (outcome.code, outcome.err) == (0, "")
    assert "<svg" in plot.read_text()
    assert json.loads(trace.read_text())


def test_views_are_drawn_or_refused(run: Run, tiny: str, tmp_path: Path, never: str) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "x.svg"
    outcome = run("solve", tiny, "-a", "keep-all", "--plot", plot, "--view", "stages")
    assert (outcome.code, outcome.err) == (0, "")
    assert "forward runs" in plot.read_text()
    plot.unlink()
    refused = ("solve", tiny, "-a", never, "--view")
    run(*refused, "stages").assert_refused("--view", "give --plot FILE, too")
    run(*refused, "tree", "--plot", plot).assert_refused(
        "'tree' is not a view of a chain's schedule", "time, values, stages"
    )
    run(*refused, "gantt", "--plot", plot).assert_refused("--view", "'gantt'")
    assert not plot.exists()
