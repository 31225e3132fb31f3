"""`remat diff`: figures and differences of two schedules, both verified."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.helpers import Run


def test_two_schedules_side_by_side(run: Run, tiny: str, tmp_path: Path) -> None:
    one, two = str(tmp_path / "one.json"), str(tmp_path / "two.json")
    assert run("solve", tiny, "-a", "store-all", "-qo", one).code == 0
    assert run("solve", tiny, "-a", "recompute-all", "-qo", two).code == 0
    shown = run("diff", one, two, "--of", tiny)
    assert shown.code == 0
    rows = {line.split("  ")[0]: line for line in shown.out.splitlines()}
    assert rows["makespan"].split()[1:3] == ["10", "14"]
    assert rows["makespan"].endswith("+40 %")
    assert "run oftener by the first: " not in shown.out
    assert "run oftener by the second: F1 (+2), F2" in shown.out
    document = run("diff", one, two, "--of", tiny, "--format", "json").document
    assert [figures["makespan"] for figures in document["figures"]] == [10, 14]
    assert document["runs"] == {"F1": -2, "F2": -1}
    same = run("diff", one, one, "--of", tiny)
    assert "run equally often by both" in same.out
    assert run("diff", one, two, "--of", tiny, "-q").out == ""


def test_an_invalid_schedule_is_said_to_be_one(run: Run, tiny: str, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert run("solve", tiny, "-qo", one).code == 0
    document = json.loads(one.read_text())
    del document["steps"][0]
    two.write_text(json.dumps(document))
    shown = run("diff", one, two, "--of", tiny)
    assert shown.code == 6
    assert "violation" in shown.out
    assert "1 violations" not in shown.out


def test_a_schedule_without_some_tasks_has_no_negative_recompute_time(run: Run, tiny: str, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert run("solve", tiny, "-qo", one).code == 0
    document = json.loads(one.read_text())
    document["steps"] = document["steps"][:2]
    two.write_text(json.dumps(document))
    (row,) = (
        line for line in run("diff", one, two, "--of", tiny).out.splitlines() if line.startswith("recompute time")
    )
    assert row.split()[2:] == ["0", "-"]
    verdict = run("verify", tiny, two)
    assert verdict.code == 6
    assert "recompute time  unknown, because tasks are missing" in verdict.out


def test_schedules_that_cannot_be_compared_are_refused(run: Run, tiny: str, tmp_path: Path) -> None:
    one, none = tmp_path / "one.json", tmp_path / "none.json"
    assert run("solve", tiny, "-qo", one).code == 0
    assert run("solve", tiny, "-b", 1, "-qo", none).code == 3
    run("diff", one, one).assert_refused("--of", "'tiny'", "is not shipped")
    run("diff", one, none, "--of", tiny).assert_refused("'infeasible'")
    run("diff", one, tmp_path / "missing", "--of", tiny).assert_refused("cannot read schedule")
    run("diff", "-", "-", "--of", tiny).assert_refused("cannot both be standard input")
    run("diff", tiny, one, "--of", tiny).assert_refused("$")
