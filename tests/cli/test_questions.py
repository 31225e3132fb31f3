from __future__ import annotations

import json
from pathlib import Path

import pytest

import remat
from remat.cli.io_session import ExitCode
from remat.plugin.context import Context
from remat.plugin.problem import Problem
from remat.plugin.proposal import Proposal
from remat_algorithms.chain.rotor.rotor import RotorOptions
from remat_algorithms.chain.rotor.rotor import solve as rotor
from tests.cli.helpers import CHAIN, Run, Zoo

LOOP = {
    "schema": "remat.instance/1",
    "kind": "adjoint",
    "units": {"time": "unit", "memory": "unit"},
    "steps": 10,
    "state_size": 4,
    "storage": [{"name": "ram"}],
}


@pytest.mark.parametrize(
    "arguments", [["--max-overhead", "20%"], ["-O", "max_overhead=0.2"], ["--option", "max_overhead = 20 %"]]
)
def test_the_minimum_budget_is_reported(run: Run, tiny: str, arguments: list[str], tmp_path: Path) -> None:
    target = tmp_path / "schedule.json"
    outcome = run("solve", tiny, "-a", "rotor", *arguments, "-o", target)
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(target.read_text())
    size = document["answer"]["value"]
    assert document["answer"]["proved"]
    assert "question        the minimum budget of memory for an overhead of at most 20 %" in outcome.out
    assert f"answer          {size}; the least, proved for " in outcome.out
    assert run("verify", tiny, target).code == 0
    again = run("solve", tiny, "-a", "rotor", "-b", size, "--format", "json").document
    assert again["makespan"] == document["makespan"]
    assert run("solve", tiny, "-a", "rotor", *arguments, "--format", "json").document["answer"]["value"] == size


def test_slots_of_a_storage_level_are_reported(run: Run) -> None:
    outcome = run("solve", "-", "-a", "revolve", "--max-overhead", "30%", stdin=json.dumps(LOOP).encode())
    found = remat.least_budget(LOOP, algorithm="revolve", max_overhead=0.3).answer
    assert found is not None
    assert f"answer          {found.value} ({found.slots} slots); the least, proved for" in outcome.out


def test_a_makespan_limit_is_met_or_refuted(run: Run, tiny: str) -> None:
    assert "at most 12" in run("solve", tiny, "--max-makespan", "12").out
    outcome = run("solve", tiny, "--max-makespan", "9")
    assert outcome.code == ExitCode.INFEASIBLE
    assert "answer       there is none" in outcome.out
    assert "no budget is enough: with any memory, the makespan is at least 10" in outcome.out


def test_bytes_that_can_be_pasted(run: Run) -> None:
    outcome = run("solve", "example:resnet50", "--max-overhead", "30%", "-a", "chen-greedy")
    line = next(line for line in outcome.out.splitlines() if line.startswith("answer"))
    budget = line.partition("budget ")[2].partition(";")[0]
    assert "at least" in outcome.out
    assert "it is not proved that no smaller one will do" in " ".join(outcome.out.split())
    again = remat.solve(remat.example("resnet50"), algorithm="chen-greedy", budget=budget)
    assert again.overhead is not None
    assert again.overhead <= 0.3


def test_rounded_sizes_are_said_to_hide_the_schedule(run: Run, zoo: Zoo) -> None:
    def rounded(problem: Problem, options: None, context: Context) -> Proposal:
        budget = None if problem.budget is None else problem.budget // 2**26 * 2**26
        memory = problem.machine.memories[0].name
        return rotor(problem.on(problem.machine.with_capacities({memory: budget})), RotorOptions(gap=None), context)

    zoo("rounded", rounded)
    outcome = run("solve", "example:resnet50", "--max-overhead", "20%", "-a", "rounded")
    assert "at its peak, rounded finds a slower one or none" in " ".join(outcome.out.split())


def test_the_largest_batch_and_its_instance_are_written(run: Run, tiny: str, tmp_path: Path) -> None:
    schedule, scaled = tmp_path / "schedule.json", tmp_path / "scaled.json"
    arguments = ["-b", 100, "-O", "scale=batch", "-O", "batch=2", "--max-overhead", "10%"]
    outcome = run("solve", tiny, *arguments, "-o", schedule, "--output-instance", scaled)
    assert (outcome.code, outcome.err) == (0, "")
    answer = json.loads(schedule.read_text())["answer"]
    assert answer["quantity"] == "batch"
    assert f"answer          a batch of {answer['value']}; the largest, proved for" in outcome.out
    assert run("verify", scaled, schedule).code == 0
    assert "digest" in run("verify", tiny, schedule).out
    assert run("show", scaled).out.startswith(f"instance          tiny at batch {answer['value']}")


def test_a_budget_below_every_batch_is_infeasible(run: Run, tiny: str) -> None:
    outcome = run("solve", tiny, "-b", 5, "-O", "scale=batch")
    assert outcome.code == ExitCode.INFEASIBLE
    assert "not even a batch of 1 fits" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--max-overhead", "much"], ["--max-overhead: 'much'", "write 0.2 or 20%"]),
        (["--max-overhead", "-1"], ["--max-overhead: '-1'"]),
        (["--max-makespan", "3ms"], ["--max-makespan: ", "counts time in units"]),
        (["--max-overhead", "1", "-O", "max_overhead=1"], ["--max-overhead", "also given as --option"]),
        (["-O", "max_overhead=much"], ["--option max_overhead: 'much'"]),
        (["--max-overhead", "1", "-b", "30"], ["--budget", "'memory'", "only budgets of other memories"]),
        (["-O", "batch=3"], ["--option batch", "scale=batch"]),
        (["-O", "scale=size", "-b", "30"], ["--option scale", "'size'"]),
        (["-O", "scale=batch"], ["--budget: how much memory"]),
        (["-O", "scale=batch", "-O", "batch=0", "-b", "9"], ["--option batch", "'0'"]),
        (["--output-instance", "x.json"], ["--output-instance", "scale=batch"]),
        (["--output-instance", "-", "-O", "scale=batch"], ["--output-instance", "name a file"]),
        (["--output-instance", "/no/such/x.json", "-O", "scale=batch"], ["--output-instance", "no directory"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("-") else "",
)
def test_bad_questions_are_refused(run: Run, arguments: list[str], parts: list[str]) -> None:
    run("solve", "-", *arguments, stdin=json.dumps(CHAIN).encode()).assert_refused(*parts)
