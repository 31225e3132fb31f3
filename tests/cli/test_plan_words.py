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
