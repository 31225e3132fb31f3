"""Test `remat export` and `remat import pipeline-csv`: output and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.helpers import Run, Save

CSV = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
TIMES = {"stages": {"F": 1, "B": 2}, "units": {"time": "unit", "memory": "unit"}}


@pytest.fixture
def made(run: Run, save: Save, tmp_path: Path) -> tuple[str, str]:
    """Paths of an instance and of its schedule, as they were imported."""
    paths = str(tmp_path / "pipeline.json"), str(tmp_path / "schedule.json")
    files = save(CSV, "a.csv"), "--times", save(TIMES, "times.json")
    outcome = run("import", "pipeline-csv", *files, "-o", paths[0], "--schedule", paths[1])
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    return paths


def test_a_csv_survives_import_and_export(run: Run, made: tuple[str, str], tmp_path: Path) -> None:
    instance, schedule = made
    assert run("verify", instance, schedule, "--format", "json").document["makespan"] == 9
    assert run("export", schedule, "--of", instance, "--as", "pipeline-csv").out == CSV
    output = tmp_path / "b.csv.gz"
    outcome = run("export", schedule, "--of", instance, "--as", "pipeline-csv", "--transfers", "grouped", "-o", output)
    assert (outcome.code, outcome.out) == (0, "")
    assert run("verify", instance, output, "--format", "json").document["makespan"] == 9


def test_orders_that_hang_are_refused(run: Run, made: tuple[str, str], save: Save) -> None:
    instance, schedule = made
    run("export", schedule, "--of", instance, "--as", "pipeline-csv", "--transfers", "single").assert_refused(
        "--transfers: with transfers one by one this order hangs: 0SEND_F1 on gpu0 waits for 1SEND_B0 on gpu1 waits for"
    )
    grouped = run("export", schedule, "--of", instance, "--as", "pipeline-csv", "--transfers", "grouped").out
    alone = grouped.replace("SEND_F1,0RECV", "SEND_F1,,0RECV").replace("SEND_B0,1RECV", "SEND_B0,,1RECV")
    outcome = run("verify", instance, save(alone, "alone.csv"), "--format", "json")
    assert (outcome.code, [violation["rule"] for violation in outcome.document["violations"]]) == (6, ["deadlock"])


def test_solved_schedules_are_exported(run: Run, save: Save, tmp_path: Path, made: tuple[str, str]) -> None:
    solved = tmp_path / "solved.json"
    assert run("solve", made[0], "-a", "gpipe", "-qo", solved).code == 0
    assert run("export", solved, "--of", made[0], "--as", "pipeline-csv").out.startswith("0F0,0F1,0B0,0B1\n1F0,1F1,")


def test_bad_arguments_are_refused(run: Run, save: Save, made: tuple[str, str], tiny: str) -> None:
    instance, schedule = made
    run("export", schedule, "--of", instance).assert_refused("--as")
    run("export", schedule, "--as", "pipeline-csv").assert_refused("is not shipped; give it with --of")
    run("export", tiny, "--of", instance, "--as", "pipeline-csv").assert_refused("$.schema", "an instance")
    run("export", schedule, "--of", tiny, "--as", "pipeline-csv").assert_refused("orders are for pipelines")
    run("export", schedule, "--of", instance, "--as", "pipeline-csv", "-o", schedule).assert_refused("is also SCHEDULE")
    other = json.loads(Path(schedule).read_text())
    other["instance"]["digest"] = "sha256:0"
    run("export", save(other, "o.json"), "--of", instance, "--as", "pipeline-csv").assert_refused("other-instance")


def test_import_is_refused(run: Run, save: Save, tmp_path: Path) -> None:
    path, times = save(CSV, "a.csv"), save(TIMES, "times.json")
    run("import", "pipeline-csv", path).assert_refused("--times")
    run("import", "pipeline-csv", path, "--times", path).assert_refused("is also CSV")
    run("import", "pipeline-csv", "-", "--times", "-").assert_refused("cannot both be standard input")
    run("import", "pipeline-csv", path, "--times", times, "--schedule", "-").assert_refused("standard output")
    run("import", "pipeline-csv", path, "--times", tmp_path / "none").assert_refused("No such file")
    run("import", "pipeline-csv", path, "--times", save([], "list.json")).assert_refused(
        "list.json: $: expected an object"
    )
    bad = save("0F0,0X0\n", "bad.csv")
    run("import", "pipeline-csv", bad, "--times", times).assert_refused(
        "bad.csv: row 1, cell 2: '0X0' is not an action"
    )


def test_schedules_are_read_from_standard_input(run: Run, save: Save) -> None:
    times = save(TIMES, "times.json")
    assert run("import", "pipeline-csv", "-", "--times", times, stdin=CSV.encode()).document["kind"] == "pipeline"


def test_notes_name_what_a_csv_cannot_express(run: Run, save: Save) -> None:
    times = save({"stages": {"F": 1, "B": 2}}, "times.json")
    path = save("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n", "o.csv")
    assert run("import", "pipeline-csv", path, "--times", times).err.startswith("Note: 1 cell of two operations")
    assert run("import", "pipeline-csv", path, "--times", times, "-q").err == ""


def test_a_table_of_runs(run: Run, save: Save, tmp_path: Path) -> None:
    origin = {"module": "layer1.conv", "op": "aten.convolution", "source": "net.py:7"}
    tasks = [
        {"id": "one", "time": 2, "reads": [], "size": 4, "phase": "forward", "origin": origin},
        {"id": "two", "time": 1, "reads": ["one"], "size": 1, "phase": "backward"},
    ]
    document = {"schema": "remat.instance/3", "kind": "dag", "tasks": tasks, "outputs": ["two"]}
    instance, schedule, plan = save(document, "dag.json"), tmp_path / "dag-schedule.json", tmp_path / "plan.json"
    assert run("solve", instance, "-o", schedule).code == 0
    outcome = run("export", schedule, "--of", instance, "--as", "table")
    assert [line.split() for line in outcome.out.splitlines()] == [
        ["run", "start", "task", "phase", "module", "op", "source", "drops"],
        ["1", "0", "s", "one", "forward", "layer1.conv", "aten.convolution", "net.py:7"],
        ["1", "2", "s", "two", "backward", "one"],
    ]
    plan.write_text(json.dumps({"schema": "remat.plan/1", "schedule": json.loads(schedule.read_text())}))
    assert run("export", plan, "--of", instance, "--as", "table").out == outcome.out
    run("export", schedule, "--of", instance, "--as", "table", "--transfers", "single").assert_refused("--transfers")
    broken = json.loads(schedule.read_text())
    broken["steps"] = broken["steps"][1:]
    run("export", save(broken, "broken.json"), "--of", instance, "--as", "table").assert_refused("breaks rules")


def test_fit_lists_what_it_knows(run: Run) -> None:
    assert "torch" in run("fit").out
    outcome = run("fit", "torch", "--help")
    assert (outcome.code, "--max-batch" in outcome.out) == (0, True)
    run("fit", "torch", "train:make").assert_refused("--budget")


@pytest.mark.parametrize("option", ["--budget", "--reserve"])
def test_fit_refuses_a_size_as_solve_does(run: Run, tiny: str, option: str) -> None:
    run("solve", tiny, "--budget", "60mb").assert_refused("--budget: '60mb' has an unknown unit 'mb'")
    given = {"--budget": "1GB", option: "60mb"}
    said = f"{option}: '60mb' has an unknown unit 'mb'; did you mean 60MB or 60MiB?"
    run("fit", "torch", "no_such_module:make", *sum(given.items(), ())).assert_refused(said)


def test_fit_refuses_a_share_and_a_limit_before_anything_runs(run: Run) -> None:
    run("fit", "torch", "no_such_module:make", "-b", "7x%").assert_refused("--budget: '7x%' is not a share of the peak")
    given = ("-b", "1GB", "--time-limit", "3x")
    run("fit", "torch", "no_such_module:make", *given).assert_refused("--time-limit: '3x' is not a duration")


def test_policies_are_exported(run: Run, tmp_path: Path) -> None:
    plan, code = tmp_path / "plan.json", tmp_path / "checkpointing.py"
    assert run("solve", "example:resnet50", "-a", "rotor", "--budget", "1.2GB", "-qo", plan).code == 0
    outcome = run("export", plan, "--as", "torchtitan")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("# verified peak 826.9 MiB, time 69.996 ms; the plan: 1.113 GiB, 60.018 ms\n")
    assert outcome.out.endswith('[activation_checkpoint]\nmode = "full"\n')
    outcome = run("export", plan, "--as", "torch-checkpoint", "-o", code)
    assert (outcome.code, outcome.out) == (0, "")
    assert "the policy needs more memory than the plan" in outcome.err
    compile(code.read_text(), str(code), "exec")
    run("export", plan, "--as", "torch-sac").assert_refused("--as: torch-sac is for task graphs of captured PyTorch")
    run("export", plan, "--as", "megatron", "--transfers", "grouped").assert_refused("megatron has no transfers")


def test_programs_for_a_host(run: Run, save: Save, tmp_path: Path) -> None:
    links = [{"source": one, "target": two, "bandwidth": 6} for one, two in (("gpu", "host"), ("host", "gpu"))]
    memories = [{"name": "gpu"}, {"name": "host"}]
    machine = {"memories": memories, "processors": [{"name": "p", "memory": "gpu"}], "links": links}
    stage = {"forward_time": 2, "backward_time": 4, "output_size": 2, "saved_size": 9, "repeat": 5}
    instance = save({"schema": "remat.instance/1", "kind": "chain", "input_size": 2, "stages": [stage]}, "chain.json")
    plan = tmp_path / "plan.json"
    given = ("--machine", save(machine, "machine.json"), "-b", "gpu=40", "-a", "offload-greedy", "-qo", plan)
    assert run("solve", instance, *given).code == 0
    outcome = run("export", plan, "--of", instance, "--as", "host-program", "-o", tmp_path / "program.json")
    assert outcome.code == 0
    assert "copies start between runs: " in outcome.err
    program = json.loads((tmp_path / "program.json").read_text())
    words = {next(iter(one)) for one in program["operations"]}
    assert (program["schema"], words) == ("remat.program/1", {"run", "offload", "reload", "wait"})
    assert program["peak_memory"]["gpu"] <= 40


def test_a_program_needs_a_machine_without_the_processor_of_the_host(run: Run, save: Save, tmp_path: Path) -> None:
    """The refusal names the processor; without it in the machine, the device updates, and there is a program."""
    words = ("--config", "gpt2", "--sequence", 64, "--device", "A100", "--states", "host")
    document = run("generate", "chain", *words).document
    instance, plan = save(document, "chain.json"), tmp_path / "plan.json"
    asked = ("solve", instance, "-a", "weight-offload", "-O", "evaluations=20", "-qo", plan)
    export = ("export", plan, "--of", instance, "--as", "host-program", "-o", tmp_path / "program.json")
    assert run(*asked).code == 0
    refused = run(*export).err
    assert refused.startswith(f"Error: {plan}: a program has one processor; the schedule uses several: ")
    assert "solve with a `machine` without cpu" in refused
    alone = document["machine"] | {"processors": document["machine"]["processors"][:1]}
    assert run(*asked, "--machine", save(alone, "machine.json")).code == 0
    assert run(*export).code == 0
    operations = json.loads((tmp_path / "program.json").read_text())["operations"]
    assert any(one.get("run") == "U1" for one in operations)
