"""What the answers of `remat plan` say about targets, updates, and the next command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from remat.cli.plan_commands import decisions_command
from tests.cli.helpers import Run, Save
from tests.cli.test_plan import LAYER, NET

SMALL = NET | {"layers": [LAYER | {"repeat": 2}], "micro_batches": 2}
QUICK = ("-O", "moves=0", "-O", "zoo=false")


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("target", [("--max-makespan", "300"), ("--max-overhead", "10%")])
def test_a_target_is_refused_with_commands_that_work(
    run: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: tuple[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run("plan", save(SMALL), "--devices", "2", *target, *QUICK)
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    commands = [shlex.split(text) for text in refused.err.partition(" a time: ")[2].split("; ")]
    assert [command[:2] for command in commands] == [["remat", "plan"], ["remat", "solve"]]
    assert run(*commands[0][1:]).code == 0
    assert run(*commands[1][1:], "--time-limit", "1ms").code in (0, 4)


def test_a_pipeline_that_is_planned_as_it_is_needs_one_command(run: Run, save: Save) -> None:
    refused = run("plan", save(NET), "--max-makespan", "90")
    assert "remat plan" not in refused.err.partition(" a time: ")[2]


def test_the_choice_of_degrees_is_repeated_by_the_printed_command(run: Run, save: Save) -> None:
    asked = ("plan", save(NET), "--devices", "4", "--data", "1,2,3", "--zero", "0,1", *QUICK)
    first = run(*asked)
    (command,) = [line for line in first.out.splitlines() if line.startswith("remat plan ")]
    again = run(*shlex.split(command, comments=True)[1:])
    figure = [line for line in first.out.splitlines() if line.startswith("time of a step")]
    assert figure
    assert [line for line in again.out.splitlines() if line.startswith("time of a step")] == figure
    assert "remat plan" not in again.out


def test_devices_that_stand_for_ranks_are_named(run: Run, save: Save) -> None:
    told = words(run("plan", save(SMALL), "--devices", "4", "--data", "2", *QUICK).out)
    assert "ranks 2: gpu0 stands for gpu0, gpu1, and so on decisions run layers" in told


def test_an_answer_that_is_cut_names_the_command_that_lists_all(
    run: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    net = save(NET | {"layers": [LAYER | {"repeat": 24}], "micro_batches": 2})
    asked = ("plan", net, "--devices", "6", "-b", "110", *QUICK)
    told = run(*asked)
    assert "more such lines" in words(told.out)
    last = told.out.splitlines()[-1]
    assert "after the same command with -o schedule.json and --output-instance planned.json" in last
    assert run(*asked, "-o", "schedule.json", "--output-instance", "planned.json").code == 0
    listed = run(*shlex.split(last, comments=True)[1:])
    assert (listed.code, listed.out.split()[0]) == (0, "stage")


def test_the_command_names_stages_only_where_there_are_some() -> None:
    chain = decisions_command("complete lists: remat decisions (by stage), or", "p.json", "net.json")
    assert chain == "remat decisions p.json --of net.json --by stage"
    graph = decisions_command("and 3 more such lines: remat decisions lists all values", "p.json", "net.json")
    assert graph == "remat decisions p.json --of net.json"
    assert decisions_command("keep everything", "p.json", "net.json") == ""


def test_a_plan_says_whether_its_time_includes_updates(run: Run, save: Save) -> None:
    def told(**more: Any) -> str:
        return words(run("plan", save(NET | {"layers": [LAYER | more]}), "--devices", "2", *QUICK).out)

    assert "updates not in the time of a step: no layer has an update_time" in told()
    # Each of two devices updates four layers of 3 units.
    assert "updates up to 12 of a device, in the time of a step: one layer after the other" in told(update_time=3)
    assert "updates" not in told(parameter_size=0, optimizer_size=0)


def test_devices_without_a_stage_are_counted(run: Run, save: Save) -> None:
    told = words(run("plan", save(SMALL), "--devices", "3", *QUICK).out)
    assert "one on each device; 1 of 3 devices has none" in told
    assert "have none" not in words(run("plan", save(SMALL), "--devices", "2", *QUICK).out)


def test_a_bare_link_is_no_bandwidth(run: Run, save: Save) -> None:
    real = NET | {"units": {"time": "ms"}}
    refused = run("plan", save(real), "--devices", "2", "--link", "100", *QUICK)
    assert refused.err == "Error: --link: 100 bytes/s: did you mean 100GB/s? If not, write 100B/s\n"
    assert run("plan", save(real), "--devices", "2", "--link", "100B/s", *QUICK).code == 0
    assert run("plan", save(NET), "--devices", "2", "--link", "100", *QUICK).code == 0  # units of its own


def test_a_chain_that_no_option_makes_plannable_is_refused_at_once(run: Run, save: Save) -> None:
    stage = {"forward_time": 1, "backward_time": 2, "output_size": 1, "saved_size": 1}
    chain = {"schema": "remat.instance/2", "kind": "chain", "input_size": 1, "stages": [stage]}
    refused = run("plan", save(chain))
    assert "this chain has no parameters" in refused.err
    assert "of which all parameters are trained" in refused.err
    with_parameters = chain | {"stages": [stage | {"parameter_size": 1}]}
    assert "also needs --devices N, --micro-batches N" in run("plan", save(with_parameters)).err


def test_the_name_of_a_model_is_answered_with_the_command_that_makes_an_instance(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run("plan", "gpt2")
    assert refused.code == 2
    command = refused.err.strip().partition("this makes one: ")[2]
    assert run(*shlex.split(command)[1:]).code == 0
    assert "also needs --devices N" in run("plan", "step.json").err


def test_kinds_have_their_article(run: Run, save: Save) -> None:
    loop = {"schema": "remat.instance/2", "kind": "adjoint", "steps": 3, "storage": [{"name": "ram", "slots": 1}]}
    assert "an adjoint has no layers" in run("plan", save(loop)).err


def test_a_plan_names_the_class_within_which_it_is_optimal(run: Run, save: Save) -> None:
    whole = {key: value for key, value in LAYER.items() if not key.startswith("weight")} | {"output_size": 0}
    one_each = NET | {"layers": [whole | {"repeat": 3}], "micro_batches": 3}
    told = words(run("plan", save(one_each), "--devices", "3", *QUICK).out)
    assert "status feasible, optimal within schedules that run each layer where its parameters lie" in told
    assert "stopped" not in told


def test_a_plan_is_no_program_of_one_processor(run: Run, save: Save, tmp_path: Path) -> None:
    plan, made = str(tmp_path / "plan.json"), str(tmp_path / "made.json")
    assert run("plan", save(SMALL), "--devices", "2", *QUICK, "-o", plan, "--output-instance", made).code == 0
    refused = run("export", plan, "--of", made, "--as", "host-program")
    assert "a program has one processor and runs once; this schedule is of several devices" in refused.err
