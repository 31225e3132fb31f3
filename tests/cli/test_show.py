from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import remat
from remat.instance.shipped import examples
from tests.cli.helpers import CHAIN, Run, Save

MACHINE = {
    "memories": [{"name": "device", "capacity": "8GB"}, {"name": "host"}],
    "processors": [{"name": "gpu", "memory": "device", "count": 6}],
    "links": [
        {"source": "device", "target": "host", "bandwidth": "12GB/s", "latency": "1us"},
        {"source": "host", "target": "device"},
    ],
}


def test_facts_of_an_instance_are_printed(run: Run, tiny: str) -> None:
    outcome = run("show", tiny)
    assert (outcome.code, outcome.err) == (0, "")
    assert "tiny (chain, 3 stages)" in outcome.out
    assert "time 10" in outcome.out
    assert "peak 24 in memory, set by B3" in outcome.out
    assert "everything fits without recomputation" in outcome.out


@pytest.mark.parametrize(
    ("budget", "verdict"),
    [("1", "infeasible: memory cannot hold"), ("23", "does not fit without"), ("24", "everything fits without")],
)
def test_the_budget_gets_a_verdict(run: Run, tiny: str, budget: str, verdict: str) -> None:
    assert verdict in run("show", tiny, "--budget", budget).out


def test_json_has_the_facts(run: Run) -> None:
    document = run("show", "-", "--format", "json", stdin=json.dumps(CHAIN).encode()).document
    assert document == remat.show(CHAIN).to_dict()


def test_another_machine_is_shown(run: Run, save: Save) -> None:
    instance = save({**CHAIN, "units": {}, "static_memory": "1GiB"})
    outcome = run("show", instance, "--machine", save(MACHINE, "machine.json"), "-v")
    assert outcome.err == "remat: loaded chain tiny\n"
    assert "device: 8 GB (7.451 GiB)" in outcome.out
    assert "host: unbounded" in outcome.out
    assert "gpu0 in device, gpu1 in device, ... gpu5 in device (6 in all)" in outcome.out
    assert "device->host: 12 GB (11.18 GiB) per second, latency 1 us" in outcome.out
    assert "host->device: infinite bandwidth" in outcome.out
    assert "static memory" in outcome.out


def test_a_machine_in_units(run: Run, save: Save) -> None:
    machine = {
        "memories": [{"name": "a"}, {"name": "b"}],
        "processors": [{"name": "p", "memory": "a"}],
        "links": [{"source": "a", "target": "b", "bandwidth": 4}],
    }
    assert "a->b: bandwidth 4, channel a->b" in run("show", save(CHAIN), "--machine", save(machine, "machine.json")).out


def test_no_schedule_without_transfers(run: Run, save: Save) -> None:
    instance = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": [{"id": "v", "size": 3}],
        "inputs": [{"value": "v", "memory": "host"}],
        "tasks": [{"id": "t", "time": 1, "reads": ["v"], "writes": []}],
        "machine": {
            "memories": [{"name": "device"}, {"name": "host"}],
            "processors": [{"name": "gpu", "memory": "device"}],
            "links": [{"source": "host", "target": "device"}],
        },
    }
    outcome = run("show", save(instance))
    assert "there is no schedule without transfers" in outcome.out
    assert "host: at least 3 B, needed by the initial or final contents" in " ".join(outcome.out.split())


def test_the_schema_accepts_a_chain(run: Run) -> None:
    schema = run("show", "--schema").document
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(CHAIN, schema)


def test_examples_are_listed(run: Run) -> None:
    outcome = run("show", "--examples")
    listed = [line.split()[0] for line in outcome.out.splitlines()]
    assert len(listed) == len(examples()) >= 12
    assert run("show", listed[0]).code == 0
    assert run("show", "--examples", "--format", "json").document == {k: str(p) for k, p in examples().items()}


@pytest.mark.parametrize("arguments", [[], ["--examples", "--schema"], ["x.json", "--schema"]])
def test_one_thing_at_a_time(run: Run, arguments: list[str]) -> None:
    run("show", *arguments).assert_refused("INSTANCE", "--examples", "--schema")


def test_bad_budgets_are_refused(run: Run, tiny: str) -> None:
    run("show", tiny, "-b", "8GB").assert_refused("--budget")
    run("show", "-", "--machine", "-").assert_refused("standard input")


def test_a_schedule_at_a_glance(run: Run, tiny: str, tmp_path: Path) -> None:
    schedule = str(tmp_path / "schedule.json.gz")
    assert run("solve", tiny, "-b", 22, "-qo", schedule).code == 0
    run("show", schedule).assert_refused("--of", "'tiny'", "is not shipped")
    shown = run("show", schedule, "--of", tiny)
    assert shown.code == 0
    assert "waits for" in shown.out
    assert "█" in shown.out
    document = run("show", schedule, "--of", tiny, "--format", "json").document
    (memory,) = document["memories"].values()
    assert sum(resident["size"] for resident in memory["residents"]) == memory["peak"] <= 22
    run("show", tiny, "--of", tiny).assert_refused("is not a schedule")


def test_schedules_of_shipped_instances_need_no_instance(run: Run, tmp_path: Path) -> None:
    schedule = str(tmp_path / "schedule.json")
    assert run("solve", "example:lecture_l5", "-b", 4, "-qo", schedule).code == 0
    assert "adjoint-dp" in run("show", schedule).out
    assert run("solve", "example:lecture_l5", "-b", 1, "--overwrite", "-qo", schedule).code == 3
    assert "infeasible, proved over all schedules, as the file states" in run("show", schedule).out


def test_speeds_of_processors_are_shown(run: Run) -> None:
    outcome = run("show", "example:chains/bert_large_b32_parameters")
    assert outcome.code == 0
    assert "gpu in device, cpu in host, speed 0.0625" in outcome.out


def test_schedules_are_drawn(run: Run, tiny: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    schedule, plot = str(tmp_path / "schedule.json"), tmp_path / "x.svg"
    assert run("solve", tiny, "-b", 22, "-qo", schedule).code == 0
    for view, word in (("time", "budget 22"), ("reversal", "backward"), ("values", "11 values, as high")):
        given = [] if view == "time" else ["--view", view]
        outcome = run("show", schedule, "--of", tiny, "--plot", plot, *given)
        assert (outcome.code, outcome.err) == (0, "")
        assert "waits for" in outcome.out
        assert word in plot.read_text()
    plot.unlink()
    of = ("show", schedule, "--of", tiny)
    run(*of, "--plot", plot, "--view", "tree").assert_refused("'tree' is not a view of a chain's schedule")
    run(*of, "--view", "values").assert_refused("give --plot FILE, too")
    run(*of, "--plot", "x.eps").assert_refused("--plot", ".svg")
    run(*of, "--plot", schedule).assert_refused("--plot", "also SCHEDULE")
    run(*of, "--plot", "/no/such/folder/x.svg").assert_refused("--plot", "no directory")
    run("show", tiny, "--plot", plot).assert_refused("an instance has no pictures")
    Path(schedule).write_text(json.dumps({"schema": "remat.schedule/1", "steps": [{"run": "loss"}]}))
    run(*of, "--plot", plot).assert_refused("the schedule breaks rules")
    assert not plot.exists()


@pytest.mark.parametrize(("budget", "shown"), [("900MB", "900 MB"), ("900MiB", "900 MiB")])
def test_a_schedule_is_shown_in_the_kind_of_unit_of_its_budget(
    run: Run, tmp_path: Path, budget: str, shown: str
) -> None:
    plan, picture = tmp_path / "plan.json", tmp_path / "plan.svg"
    run("solve", "example:resnet50", "-b", budget, "-a", "rotor", "-q", "-o", plan)
    outcome = run("show", plan, "--plot", picture)
    assert f" of {shown} at " in outcome.out
    assert f"budget {shown}<" in picture.read_text()
