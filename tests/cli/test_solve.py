from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

import remat
from remat.cli.io_session import ExitCode
from remat.generate import generate
from remat.plugin.context import Context
from remat.plugin.options import Options
from remat.plugin.problem import Problem
from remat.plugin.proposal import Proposal, Termination
from remat.plugin.registry import Algorithm
from remat_algorithms.dag.keep_all import solve as keep_all
from tests.cli.helpers import CHAIN, Run, Save, Zoo

PEAK = 24  # of keep-all on CHAIN; see test_the_table_has_the_figures


def test_the_table_has_the_figures(run: Run, tiny: str) -> None:
    outcome = run("solve", tiny, "-a", "keep-all", "--budget", PEAK)
    assert (outcome.code, outcome.err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in outcome.out.splitlines())
    assert lines["instance"] == "tiny"
    assert lines["status"] == "optimal"
    assert lines["makespan"] == "10"
    assert f"memory: {PEAK} of {PEAK}, set by" in outcome.out


@pytest.mark.parametrize(("share", "size"), [("75%", 18), ("99.9 %", 23), ("150%", 36)])
def test_a_share_of_the_peak_is_a_size(run: Run, tiny: str, share: str, size: int) -> None:
    answers = [run("solve", tiny, "-a", "store-all", "-b", budget, "--format", "json") for budget in (share, size)]
    first, second = (json.loads(answer.out)["machine"]["memories"] for answer in answers)
    assert first == second
    assert first[0]["capacity"] == size
    facts = json.loads(run("show", tiny, "-b", share, "--format", "json").out)
    assert facts == json.loads(run("show", tiny, "-b", size, "--format", "json").out)


def test_a_share_is_of_the_first_storage_level(run: Run, save: Save) -> None:
    loop = dict(generate("adjoint", "uniform", steps=11, storage="ram:slots=4;disk:slots=3,write_time=1"))
    path = save(loop)
    stored = remat.solve(loop, algorithm="store-all", budget={"": None}).peak_memory["ram"]
    half = json.loads(run("solve", path, "-b", "50%", "--format", "json").out)
    memories = {memory["name"]: memory["capacity"] for memory in half["machine"]["memories"]}
    assert memories["ram"] == stored // 2


@pytest.mark.parametrize("share", ["0%", "-5%", "x%", "%", "nan%", "20000%", "1e999999%"])
def test_what_is_no_share(run: Run, tiny: str, share: str) -> None:
    outcome = run("solve", tiny, "-b", share)
    assert outcome.code == ExitCode.USAGE
    assert f"--budget: '{share}' is not a share of the peak; write a size such as 8GB, or 80%" in outcome.err


def test_a_share_may_name_its_memory(run: Run, tiny: str) -> None:
    answers = [run("solve", tiny, "-b", budget, "--format", "json") for budget in ("80%", "memory=80%")]
    first, second = (json.loads(answer.out)["machine"]["memories"] for answer in answers)
    assert first == second


def test_numbers_that_are_hardly_bytes_are_remarked(run: Run, tiny: str) -> None:
    for command in (("solve", "-a", "keep-all"), ("show",), ("sweep", "-a", "keep-all")):
        outcome = run(*command, "example:resnet50", "-b", "16")
        assert outcome.err == "Warning: --budget: 16 bytes: did you mean 16GB?\n", command
    assert run("solve", "example:resnet50", "-a", "keep-all", "-b", "memory=16", "-q").err == ""
    assert run("solve", tiny, "-a", "keep-all", "-b", "1").err == ""


def test_units_that_are_nearly_right(run: Run, tiny: str) -> None:
    assert "'16gib' has an unknown unit 'gib'; did you mean 16GiB?" in run("solve", tiny, "-b", "16gib").err
    assert "--time-limit: '5 minutes' is not a duration" in run("solve", tiny, "--time-limit", "5 minutes").err
    assert run("solve", tiny, "-qa", "keep-all", "--time-limit", "5m").code == ExitCode.OK


def test_quiet_prints_nothing(run: Run, tiny: str) -> None:
    outcome = run("solve", tiny, "-q", "-a", "keep-all")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_standard_input_and_examples(run: Run) -> None:
    assert run("solve", "-", "-a", "keep-all", stdin=json.dumps(CHAIN).encode()).code == 0
    assert run("solve", "-", "-a", "keep-all", stdin=gzip.compress(json.dumps(CHAIN).encode())).code == 0
    assert "lecture_l5" in run("solve", "example:lecture", "-a", "keep-all").out


def test_the_schedule_is_written(run: Run, tiny: str, tmp_path: Path) -> None:
    target = tmp_path / "schedule.json"
    assert run("solve", tiny, "-a", "keep-all", "-o", target).code == 0
    assert remat.verify(tiny, str(target)).ok
    packed = tmp_path / "schedule.json.gz"
    assert run("solve", tiny, "-a", "keep-all", "-o", packed).code == 0
    first, second = (json.loads(data) for data in (gzip.decompress(packed.read_bytes()), target.read_bytes()))
    assert first["steps"] == second["steps"]


def test_schedule_on_standard_output(run: Run, tiny: str) -> None:
    outcome = run("solve", tiny, "-a", "keep-all", "-o", "-")
    assert outcome.document["schema"] == "remat.schedule/1"
    assert "makespan" in outcome.err
    assert run("solve", tiny, "-a", "keep-all", "-qo", "-").err == ""


def test_json_has_the_figures(run: Run, tiny: str) -> None:
    document = run("solve", tiny, "-a", "keep-all", "--format", "json").document
    assert document["schema"] == "remat.summary/1"
    assert document["makespan"] == 10
    assert document["overhead"] == 0
    assert document["gap"] == 0
    assert document["peak_step"].keys() == document["peak_memory"].keys() == {"memory"}
    assert document["steps"] > 0


def test_actions_of_an_adjoint_are_printed(run: Run) -> None:
    outcome = run("solve", "example:lecture_l5", "-a", "keep-all", "--format", "actions")
    assert outcome.code == 0
    assert outcome.out.splitlines()[:2] == ["checkpoint x0", "advance 0 -> 1"]


def test_actions_of_an_infeasible_problem_are_none(run: Run) -> None:
    outcome = run("solve", "example:lecture_l5", "-a", "keep-all", "--format", "actions", "-b", "1")
    assert (outcome.code, outcome.out) == (3, "")
    assert "infeasible" in outcome.err


def test_actions_are_refused_before_solving(run: Run) -> None:
    run("solve", "example:mlp12", "--format", "actions").assert_refused("--format actions", "dag")


def test_infeasible_answers_name_the_budget(run: Run, tiny: str, tmp_path: Path) -> None:
    target = tmp_path / "answer.json"
    outcome = run("solve", tiny, "-a", "keep-all", "-b", PEAK - 1, "-o", target)
    assert outcome.code == ExitCode.UNKNOWN
    assert "unknown, infeasible within the keep-all schedule" in outcome.out
    assert f"a schedule is found with budget {PEAK}" in outcome.out
    answer = json.loads(target.read_text())
    assert (answer["status"], answer["scope"]) == ("unknown", "the keep-all schedule")
    assert answer["least_budget"]["size"] == PEAK
    assert "steps" not in answer
    assert run("solve", tiny, "-a", "keep-all", "-b", PEAK).code == 0


def test_infeasible_by_a_bound(run: Run, tiny: str, zoo: Zoo) -> None:
    zoo("give-up", lambda problem, options, context: Proposal())
    outcome = run("solve", tiny, "-a", "give-up", "-b", "1")
    assert outcome.code == ExitCode.INFEASIBLE
    assert "proved over all schedules" in outcome.out
    assert "a lower bound: every schedule needs budget" in outcome.out


def test_infeasible_in_one_order_only(run: Run, save: Save) -> None:
    tasks: list[dict[str, Any]] = [{"id": f"a{k}", "time": 1, "size": 10, "recomputable": False} for k in "12"]
    tasks += [{"id": f"c{k}", "time": 1, "size": 1, "reads": [f"a{k}"]} for k in "12"]
    tasks += [{"id": "join", "time": 1, "size": 1, "reads": ["c1", "c2"]}]
    document = {"schema": "remat.instance/1", "kind": "dag", "units": {"time": "unit", "memory": "unit"}}
    path = save(document | {"tasks": tasks, "outputs": ["join"]})
    outcome = run("solve", path, "-b", "12", "-a", "dag-auto")
    assert outcome.code == ExitCode.UNKNOWN
    text = " ".join(outcome.out.split())
    assert "memory: within schedules in the reference order, at least 13 a lower bound for these" in text
    assert "every schedule needs" not in text
    assert "resident" not in text
    assert "another order of the tasks may fit: try option reorder=true or algorithm dag-order-exact" in text
    assert run("solve", path, "-b", "12").code == 0
    assert run("solve", path, "-b", "12", "-a", "dag-order-exact").code == 0
    answer = run("solve", path, "-b", "12", "-a", "dag-auto", "--format", "json").document
    assert answer["infeasible_within"] == "schedules in the reference order"
    least = answer["least_budget"]
    assert (least["size"], least["task"], least["scope"]) == (13, None, "schedules in the reference order")
    for name in ("dtr", "min-cut"):
        text = run("solve", path, "-b", "12", "-a", name).out
        assert f"memory: 21 for {name}\n" in text


def test_rotor_end_to_end(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "schedule.json"
    outcome = run("solve", "example:resnet50", "-b", "1GiB", "-a", "rotor", "-O", "gap=2%", "-o", target)
    assert outcome.code == 0
    assert "rotor (gap=0.02)" in outcome.out
    report = remat.verify(remat.example("resnet50"), str(target))
    assert report.ok
    assert report.peak_memory["memory"] <= 2**30


# What can be wrong with options --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["-b", "8GB"], ["--budget", "counts memory in units"]),
        (["-b", "8,5"], ["--budget", "'8,5'"]),
        (["-b", "-1"], ["--budget", "'-1'"]),
        (["-b", "nan"], ["--budget", "'nan'"]),
        (["-b", "1e40"], ["--budget", "2^62"]),
        (["-b", ""], ["--budget", "''"]),
        (["-b", "device=3"], ["--budget", "unknown memory 'device'", "has 'memory'"]),
        (["-b", "=3"], ["--budget", "name is missing"]),
        (["-b", "3", "-b", "4"], ["--budget", "twice"]),
        (["-b", "memory=3", "-b", "memory=4"], ["--budget", "'memory' is given twice"]),
        (["-b", "memory=3", "-b", "4"], ["--budget", "'memory' is given twice"]),
        (["-a", "keepall"], ["--algorithm", "'keepall'", "did you mean 'keep-all'?"]),
        (["-a", "zzz"], ["--algorithm", "known for chain"]),
        (["-a", "for-trees"], ["--algorithm", "solves tree, not chain"]),
        (["-a", "unavailable"], ["--algorithm", "needs no_such_module"]),
        (["-a", "keep-all", "-O", "slots=3"], ["--option", "no options", "'slots'"]),
        (["-a", "optional", "-O", "slot=3"], ["--option", "'slot'", "did you mean 'slots'?"]),
        (["-a", "optional", "-O", "zzz=3"], ["--option", "it has slots"]),
        (["-a", "optional", "-O", "slots=x"], ["--option slots", "'x'"]),
        (["-a", "optional", "-O", "slots=0"], ["--option slots", "greater than 0"]),
        (["-O", "slots"], ["--option", "KEY=VALUE", "'slots'"]),
        (["-O", "=3"], ["--option", "KEY=VALUE"]),
        (["-O", "slots=3", "-O", "slots=4"], ["--option", "'slots' is given twice"]),
        (["--time-limit", "soon"], ["--time-limit", "'soon'"]),
        (["--time-limit", "-3"], ["--time-limit", "'-3'"]),
        (["--seed", "-1"], ["--seed"]),
        (["--seed", "x"], ["--seed"]),
        (["--threads", "0"], ["--threads"]),
        (["--format", "xml"], ["--format", "xml"]),
        (["--plot", "x.txt"], ["--plot", ".svg"]),
        (["--plot", "-"], ["--plot"]),
        (["--trace", "-"], ["--trace"]),
        (["-o", "-", "--format", "json"], ["--output", "--format json"]),
        (["-o", ""], ["--output", "empty"]),
        (["--machine", "-", "-b", "3"], ["--machine", "standard input"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("-") else "",
)
def test_bad_options_are_refused(run: Run, zoo: Zoo, arguments: list[str], parts: list[str]) -> None:
    class Slots(Options):
        slots: int = Field(500, gt=0)

    zoo("for-trees", keep_all, kinds=("tree",))
    zoo("unavailable", keep_all, requires=("no_such_module",))
    zoo("optional", keep_all, Slots)
    run("solve", "-", *arguments, stdin=json.dumps(CHAIN).encode()).assert_refused(*parts)


def test_options_reach_the_algorithm(run: Run, tiny: str, zoo: Zoo) -> None:
    class Slots(Options):
        slots: int = Field(500, gt=0)
        fast: bool = False

    seen: list[Any] = []

    def solve(problem: Problem, options: Slots, context: Context) -> Proposal:
        seen.append((options, context.seed, context.threads, context.seconds_left))
        return keep_all(problem, None, context)

    zoo("look", solve, Slots)
    arguments = ["-O", "slots=7", "-O", " fast = true ", "--seed", 5, "--threads", 2, "--time-limit", "5min"]
    outcome = run("solve", tiny, "-a", "look", *arguments)
    assert outcome.code == 0
    options, seed, threads, left = seen[0]
    assert (options.slots, options.fast, seed, threads) == (7, True, 5, 2)
    assert 0 < left <= 300
    assert "look (slots=7, fast=True), seed 5" in outcome.out


def test_named_and_bare_budgets(run: Run, tiny: str, save: Save) -> None:
    machine = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [
            {"source": "device", "target": "host", "bandwidth": 4},
            {"source": "host", "target": "device", "bandwidth": 4},
        ],
    }
    path = save(machine, "machine.json")
    arguments = ["solve", tiny, "-a", "keep-all", "--machine", path, "--format", "json"]
    memories = run(*arguments, "-b", PEAK, "-b", "host=100").document["machine"]["memories"]
    assert memories == [{"name": "device", "capacity": PEAK}, {"name": "host", "capacity": 100}]
    outcome = run("solve", tiny, "-a", "keep-all", "--machine", path, "-b", PEAK - 1)
    assert outcome.code == 4
    assert "the machine has links, which this algorithm does not use" in " ".join(outcome.out.split())
    assert f"budget device={PEAK}" in outcome.out


def test_a_bare_budget_is_the_first_storage_level(run: Run) -> None:
    arguments = ["-b", "7", "-b", "working=300", "-a", "keep-all", "--format", "json"]
    outcome = run("solve", "example:heterogeneous_n200", *arguments)
    capacities = {memory["name"]: memory["capacity"] for memory in outcome.document["machine"]["memories"]}
    assert capacities == {"working": 300, "checkpoints": 7}


# Outcomes -------------------------------------------------------------------------------------------


def test_an_unknown_answer_has_its_exit_code(run: Run, tiny: str, zoo: Zoo) -> None:
    zoo("idle", lambda problem, options, context: Proposal(termination=Termination.TIME_LIMIT))
    outcome = run("solve", tiny, "-a", "idle")
    assert outcome.code == ExitCode.UNKNOWN
    assert "unknown (time limit)" in outcome.out


def test_an_interrupt_returns_the_best_schedule(run: Run, tiny: str, zoo: Zoo) -> None:
    def stop(problem: Problem, options: None, context: Context) -> Proposal:
        signal.raise_signal(signal.SIGINT)
        assert context.stopped
        found = keep_all(problem, None, context) if context.seed else Proposal()
        return Proposal(steps=found.steps, termination=context.termination)

    zoo("stop", stop)
    empty = run("solve", tiny, "-a", "stop")
    assert empty.code == ExitCode.INTERRUPTED
    full = run("solve", tiny, "-a", "stop", "--seed", "1")
    assert full.code == ExitCode.OK
    assert "(interrupted)" in full.out


def test_a_second_interrupt_ends_the_command(run: Run, tiny: str, zoo: Zoo) -> None:
    def stop(problem: Problem, options: None, context: Context) -> Proposal:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    zoo("stop", stop)
    outcome = run("solve", tiny, "-a", "stop")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "Error: interrupted\n")


def test_a_false_claim_is_reported_as_a_bug(run: Run, tiny: str, zoo: Zoo) -> None:
    def lie(problem: Problem, options: None, context: Context) -> Proposal:
        return Proposal(steps=keep_all(problem, None, context).steps, makespan=1)

    zoo("liar", lie)
    outcome = run("solve", tiny, "-a", "liar")
    assert outcome.code == ExitCode.CLAIM
    assert outcome.err.startswith("Error: liar claims makespan 1, verified is 10")
    assert "of the package 'zoo_of_a_test': please report it to its authors" in outcome.err
    assert outcome.err.count("\n") == 1


def test_to_whom_a_false_claim_is_reported(run: Run, tiny: str, zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(problem: Problem, options: None, context: Context) -> Proposal:
        return Proposal(steps=keep_all(problem, None, context).steps, makespan=1)

    zoo("liar", lie)
    for package, said in (
        ("remat_algorithms", ": please report it)"),
        ("numpy", "of the package 'numpy': please report it to its authors"),
    ):
        monkeypatch.setattr(Algorithm, "package", package)
        assert said in run("solve", tiny, "-a", "liar").err
