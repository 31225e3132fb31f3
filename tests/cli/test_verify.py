from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import remat
from tests.cli.helpers import CHAIN, Run, Save


@pytest.fixture
def schedule() -> dict[str, Any]:
    return remat.solve(CHAIN, algorithm="keep-all", budget=24).to_dict()


def test_a_valid_schedule_is_accepted(run: Run, tiny: str, save: Save, schedule: dict[str, Any]) -> None:
    outcome = run("verify", tiny, save(schedule, "schedule.json"))
    assert (outcome.code, outcome.err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in outcome.out.splitlines())
    assert lines["verdict"] == "ok"
    assert lines["makespan"] == "10"
    assert lines["steps"] == "7"
    assert "memory: 24, set by B3 (step 4)" in outcome.out
    assert "capacity of memory is 24, the instance's is unbounded" in outcome.out


def test_a_schedule_is_read_from_standard_input(run: Run, tiny: str, save: Save, schedule: dict[str, Any]) -> None:
    assert run("verify", tiny, "-", stdin=json.dumps(schedule).encode()).code == 0
    path = save(schedule, "schedule.json")
    assert run("verify", "-", path, stdin=json.dumps(CHAIN).encode()).code == 0
    run("verify", "-", "-").assert_refused("INSTANCE and SCHEDULE", "standard input")


@pytest.mark.parametrize("machine", ["machine.json", "/etc/hostname", "-", 3, 1.5, True, [[]]])
def test_a_machine_that_is_none(run: Run, tiny: str, save: Save, schedule: dict[str, Any], machine: object) -> None:
    """A schedule names no file to be read."""
    path = save(schedule | {"machine": machine}, "schedule.json")
    run("verify", tiny, path).assert_refused("$.machine: expected an object, not")


def test_a_budget_replaces_the_capacity(run: Run, tiny: str, save: Save, schedule: dict[str, Any]) -> None:
    """The schedule holds 24 at its peak; with less memory it breaks a rule, with more it does not."""
    path = save(schedule, "schedule.json")
    assert run("verify", tiny, path, "-b", "24").code == 0
    short = run("verify", tiny, path, "-b", "23")
    assert short.code == 6
    assert "capacity: memory would hold 24 of 23" in short.out
    assert not remat.verify(CHAIN, schedule, budget=23).ok
    run("verify", tiny, path, "-b", "cache=24").assert_refused("cache")


def test_quiet_prints_nothing(run: Run, tiny: str, save: Save, schedule: dict[str, Any]) -> None:
    assert run("verify", "-q", tiny, save(schedule, "schedule.json")).out == ""


def test_verbose_logs_the_instance(run: Run, tiny: str, save: Save, schedule: dict[str, Any]) -> None:
    assert "remat: loaded chain tiny" in run("verify", "-v", tiny, save(schedule, "schedule.json")).err


def test_violations_are_listed(run: Run, tiny: str, save: Save, schedule: dict[str, Any]) -> None:
    del schedule["steps"][0]
    path = save(schedule, "schedule.json")
    outcome = run("verify", tiny, path)
    assert outcome.code == 6
    assert "step 0: read-missing" in outcome.out
    document = run("verify", tiny, path, "--format", "json").document
    assert document["ok"] is False
    assert {"step": 0, "rule": "read-missing"}.items() <= document["violations"][0].items()


def test_many_violations_are_cut(run: Run, save: Save) -> None:
    stages = [copy.deepcopy(CHAIN["stages"][0]) | {"repeat": 60}]
    instance = {**CHAIN, "stages": stages}
    document = remat.solve(instance, algorithm="keep-all").to_dict()
    document["steps"] = [step for step in document["steps"] if not step["run"].startswith("F")]
    outcome = run("verify", save(instance), save(document, "schedule.json"))
    assert outcome.code == 6
    assert " more (--format json names them)" in outcome.out
    assert len(outcome.out.splitlines()) < 40


def test_json_has_the_verdict(run: Run, tiny: str, save: Save, schedule: dict[str, Any]) -> None:
    document = run("verify", tiny, save(schedule, "schedule.json"), "--format", "json").document
    assert document["ok"] is True
    assert document["makespan"] == 10
    assert document["peak_memory"] == {"memory": 24}
    assert document["peak_step"] == {"memory": "B3 (step 4)"}


def test_another_machine_may_be_too_small(run: Run, tiny: str, save: Save, schedule: dict[str, Any]) -> None:
    machine = save({"memories": [{"name": "memory", "capacity": 23}]}, "machine.json")
    outcome = run("verify", tiny, save(schedule, "schedule.json"), "--machine", machine)
    assert outcome.code == 6
    assert "capacity" in outcome.out


def test_a_schedule_of_another_instance_is_refused(run: Run, save: Save, schedule: dict[str, Any]) -> None:
    other = save({**CHAIN, "input_size": 1})
    path = save(schedule, "schedule.json")
    outcome = run("verify", other, path)
    assert outcome.code == 6
    assert "other-instance" in outcome.out
    forgiven = run("verify", other, path, "--any-instance", "--format", "json")
    assert {violation["rule"] for violation in forgiven.document["violations"]} <= {"capacity"}
    assert "digest differs" in "".join(forgiven.document["notes"])
    # Who wrote it by hand states no instance.
    by_hand = {key: value for key, value in schedule.items() if key != "instance"}
    assert run("verify", other, save(by_hand, "hand.json")).code == forgiven.code == 0


def test_swapped_arguments_are_recognised(
    run: Run, tiny: str, save: Save, schedule: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(tiny).parent)
    tiny, path = Path(tiny).name, Path(save(schedule, "schedule.json")).name
    run("verify", path, tiny).assert_refused("swapped", f"write: remat verify {tiny} {path}")
    run("verify", path, path).assert_refused("this is a schedule, not an instance", "remat verify INSTANCE")
    run("verify", tiny, tiny).assert_refused("is an instance, not a schedule", f"remat solve {tiny}")
    run("solve", path).assert_refused(
        "this is a schedule, not an instance", f"remat verify INSTANCE {path}", f"remat show {path}"
    )


def test_transfers_and_idle_times_are_listed(run: Run, save: Save) -> None:
    instance = save(
        {
            "schema": "remat.instance/1",
            "kind": "adjoint",
            "steps": 3,
            "units": {"time": "unit", "memory": "unit"},
            "storage": [{"name": "disk", "write_time": 2, "channel": "io"}],
        }
    )
    steps = [
        {"copy": "x0", "from": "working", "to": "disk"},
        {"run": "F1", "drop": ["x0"]},
        {"run": "F2", "drop": ["x1"]},
        {"run": "loss", "drop": ["x2"]},
        {"copy": "x0", "from": "disk", "to": "working"},
        {"run": "F1", "drop": ["x0"]},
        {"run": "B2", "drop": ["x1", "y2"]},
        {"copy": "x0", "from": "disk", "to": "working", "drop": True},
        {"run": "B1", "drop": ["x0", "y1"]},
        {"drop": []},
    ]
    outcome = run("verify", instance, save({"schema": "remat.schedule/1", "steps": steps}, "schedule.json"))
    assert outcome.code == 0, outcome
    assert "working->disk: 1" in outcome.out
    assert "io: " in outcome.out
    assert "disk: 1, set by copy of x0 (step 0)" in outcome.out


def test_initial_residency_sets_a_peak(run: Run, save: Save) -> None:
    instance = save(
        {
            "schema": "remat.instance/1",
            "kind": "dag",
            "values": [{"id": "v", "size": 3}],
            "inputs": ["v"],
            "tasks": [{"id": "t", "time": 1, "reads": ["v"], "writes": []}],
        }
    )
    steps = {"schema": "remat.schedule/1", "steps": [{"run": "t"}, {"drop": ["v"]}]}
    outcome = run("verify", instance, save(steps, "schedule.json"))
    assert "memory: 3 B, set by initial residency" in outcome.out


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"schema": "remat.instance/1"}, ["$.schema", "remat.schedule/1"]),
        ({"steps": None}, ["$.steps"]),
        ({"steps": [3]}, ["$.steps[0]"]),
        ({"steps": [{"run": "F1", "at": 3}]}, ["$.steps[0]", "'at'"]),
        ({"steps": [{"run": "F1", "start": "soon"}]}, ["$.steps[0].start", "'soon'"]),
        ({"machine": {"memories": []}}, ["machine", "$.memories"]),
    ],
)
def test_documents_that_are_no_schedule(
    run: Run, tiny: str, save: Save, schedule: dict[str, Any], change: dict[str, Any], parts: list[str]
) -> None:
    run("verify", tiny, save(schedule | change, "schedule.json")).assert_refused(*parts)


def test_an_answer_without_steps(run: Run, tiny: str, tmp_path: Path) -> None:
    target = tmp_path / "answer.json"
    assert run("solve", tiny, "-a", "keep-all", "-b", "1", "-o", target).code == 3
    run("verify", tiny, target).assert_refused("$.status", "'infeasible'")


def test_starts_are_sums_of_times(run: Run, save: Save, tmp_path: Path) -> None:
    """No time of an instance is larger than 1e300, but where a task starts, many of them may have passed."""
    tasks = [{"id": f"t{k}", "time": 9e299, "size": 1, "reads": [f"t{k - 1}"] if k else []} for k in range(4)]
    path = save({"schema": "remat.instance/1", "kind": "dag", "tasks": tasks})
    target = tmp_path / "schedule.json"
    assert run("solve", path, "-a", "keep-all", "-o", target).code == 0
    assert json.loads(target.read_text())["steps"][3]["start"] > 1e300
    outcome = run("verify", path, target)
    assert outcome.code == 0
    assert "3.6e+300" in outcome.out


def test_csv_of_a_pipeline(run: Run, tiny: str, save: Save) -> None:
    layer = {"forward_time": 1, "backward_time": 2, "repeat": 2}
    cluster = {"devices": [{"name": "gpu", "count": 2}]}
    head = {"schema": "remat.instance/3", "kind": "pipeline", "units": {"time": "unit"}, "micro_batches": 2}
    instance = save({**head, "layers": [layer], "cluster": cluster}, "pipeline.json")
    rows = ("0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1")
    good = run("verify", instance, save("\n".join(rows), "good.csv"))
    assert (good.code, good.err) == (0, "")
    assert "makespan        9\n" in good.out
    stuck = run("verify", instance, save("\n".join(["0B0,0F0,0F1,0B1", rows[1]]), "stuck.csv"), "--format", "json")
    assert stuck.code == 6
    assert stuck.document["violations"][0]["rule"] == "deadlock"
    missing = save(rows[0] + "\n1F0,1B0,,1F1,1X1", "bad.csv")
    run("verify", instance, missing).assert_refused("bad.csv: row 2, cell 5: '1X1' is not an action")
    run("verify", tiny, save(rows[0], "one.csv")).assert_refused("CSV schedules are for pipelines")
    run("verify", instance, "none.csv").assert_refused("cannot read schedule 'none.csv'")


def test_a_picture_is_drawn_by_another_command(run: Run, tiny: str) -> None:
    run("verify", tiny, "plan.json", "--plot", "plan.svg").assert_refused(
        "No such option '--plot'", "remat show SCHEDULE --plot FILE draws a schedule"
    )
