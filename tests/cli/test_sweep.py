from __future__ import annotations

import csv
import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest

import remat
from remat.cli.io_session import ExitCode
from remat.plugin.context import Context
from remat.plugin.problem import Problem
from remat.plugin.proposal import Proposal, Termination
from remat_algorithms.chain.rotor.rotor import RotorOptions
from remat_algorithms.chain.rotor.rotor import solve as rotor
from remat_algorithms.dag.keep_all import solve as keep_all
from tests.cli.helpers import CHAIN, Run, Zoo

LEAST, PEAK = 20, 24  # of rotor and of keep-all on CHAIN


def test_the_table_has_the_curves(run: Run, tiny: str) -> None:
    outcome = run("sweep", tiny, "--algorithms", "rotor,keep-all")
    assert (outcome.code, outcome.err) == (0, "")
    first, rotor_block, keep_block = outcome.out.rstrip().split("\n\n")
    assert first == "tiny, memory memory"
    head, titles, *rows = rotor_block.splitlines()
    least = remat.solve(CHAIN, algorithm="rotor", budget=1).least_budget
    assert least is not None
    assert head.startswith(f"rotor: minimum budget {least.size}, proved for ")
    assert titles.split() == ["budget", "peak", "makespan", "overhead", "recompute", "gap", "status"]
    assert rows[0].endswith("unknown (infeasible in its class)")
    assert rows[-1].split() == [str(PEAK), str(PEAK), "10", "0", "%", "0", "0", "%", "optimal"]
    assert keep_block.startswith(f"keep-all: minimum budget {PEAK}, proved for the keep-all schedule")
    assert len(keep_block.splitlines()) == 3


def test_quiet_prints_nothing(run: Run, tiny: str) -> None:
    outcome = run("sweep", tiny, "-q")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_json_is_printed_and_written(run: Run, tiny: str, tmp_path: Path) -> None:
    target = tmp_path / "sweep.json"
    arguments = ["sweep", tiny, "-a", "rotor", "-a", "keep-all", "--points", 4]
    shown = run(*arguments, "--format", "json", "-o", target).document
    written = json.loads(target.read_text())
    assert written["schema"] == "remat.sweep/1"
    assert [curve["algorithm"] for curve in written["curves"]] == ["rotor", "keep-all"]

    def timeless(document: Any) -> Any:
        for curve in document["curves"]:
            for answer in curve["answers"]:
                del answer["solve_seconds"]
        return document

    assert timeless(shown) == timeless(written)
    outcome = run(*arguments, "-o", "-")
    assert outcome.document["memory"] == "memory"
    assert "minimum budget" in outcome.err
    assert run(*arguments, "-qo", "-").err == ""


def test_csv_has_one_row_per_budget(run: Run, tiny: str) -> None:
    outcome = run("sweep", tiny, "-b", f"{PEAK},1", "--format", "csv", "-a", "rotor")
    small, large = csv.DictReader(io.StringIO(outcome.out))
    assert (small["budget"], small["status"], small["makespan"]) == ("1", "infeasible", "")
    assert (large["budget"], large["status"], large["makespan"]) == (str(PEAK), "optimal", "10")
    assert (large["pareto"], large["instance"]) == ("True", "tiny")


def test_markdown_has_one_table_per_curve(run: Run, tiny: str) -> None:
    outcome = run("sweep", tiny, "-b", PEAK, "--format", "markdown")
    title, _, head, line, row = outcome.out.splitlines()
    assert title.startswith("**auto** (minimum budget ")
    assert head.count("|") == line.count("|") == row.count("|") == 9


def test_given_budgets_are_solved(run: Run, tiny: str) -> None:
    outcome = run("sweep", tiny, "-b", f"1, {PEAK}", "--budget", "1e3", "--format", "json")
    (curve,) = outcome.document["curves"]
    assert [answer["budget"] for answer in curve["answers"]] == [1, PEAK, 1000]


def test_options_reach_their_algorithm(run: Run, tiny: str) -> None:
    outcome = run("sweep", tiny, "-a", "rotor,keep-all", "-O", "rotor.gap=5%", "--format", "json")
    assert [curve["options"] for curve in outcome.document["curves"]] == [{"gap": "5%"}, {}]


def test_one_algorithm_has_a_curve_for_each_set_of_options(run: Run, tiny: str) -> None:
    asked = ("sweep", tiny, "-a", "rotor,rough=rotor", "-O", "rough.gap=30%", "-b", "22,24")
    outcome = run(*asked)
    assert "\nrotor: minimum budget" in outcome.out
    assert "\nrough: rotor with gap=30%; minimum budget" in outcome.out
    rows = csv.DictReader(io.StringIO(run(*asked, "--format", "csv").out))
    assert {(row["algorithm"], row["solver"]) for row in rows} == {("rotor", "rotor"), ("rough", "rotor")}
    plain, rough = run(*asked, "--format", "json").document["curves"]
    assert "registered" not in plain
    assert (rough["registered"], rough["options"]) == ("rotor", {"gap": "30%"})
    run("sweep", tiny, "-a", "rotor,rotor").assert_refused("--algorithms", "LABEL=rotor")


def test_a_machine_and_an_example(run: Run, tiny: str, save: Any) -> None:
    machine = {"memories": [{"name": "device"}], "processors": [{"name": "gpu", "memory": "device"}]}
    outcome = run("sweep", tiny, "--machine", save(machine, "machine.json"))
    assert outcome.out.startswith("tiny, memory device")
    assert "lecture_l5" in run("sweep", "example:lecture").out


def test_curves_are_drawn(run: Run, tiny: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / "curves.svg"
    assert run("sweep", tiny, "--plot", target).code == 0
    assert "<svg" in target.read_text()
    nothing = tmp_path / "nothing.svg"
    outcome = run("sweep", tiny, "-b", "1", "--plot", nothing)
    assert outcome.code == ExitCode.INFEASIBLE
    assert "no curve to plot" in outcome.err
    assert not nothing.exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["-a", ""], ["--algorithms", "empty"]),
        (["-a", "rotor,"], ["--algorithms", "empty"]),
        (["-a", "roter"], ["--algorithm", "did you mean 'rotor'?"]),
        (["-a", "rotor,rotor"], ["--algorithms", "twice"]),
        (["-b", "8,,9"], ["--budget", "empty"]),
        (["-b", "8GB"], ["--budget", "counts memory in units"]),
        (["-b", "8", "--points", "3"], ["--points", "given already"]),
        (["--points", "1"], ["--points"]),
        (["-O", "slots"], ["--option", "KEY=VALUE"]),
        (["-O", "zzz=1"], ["--option", "'zzz'", "remat algorithms NAME"]),
        (["-O", "max_overhead=1"], ["--option", "question", "remat solve"]),
        (["--time-limit", "soon"], ["--time-limit", "'soon'"]),
        (["--seed", "-1"], ["--seed"]),
        (["--format", "xml"], ["--format", "xml"]),
        (["--plot", "x.txt"], ["--plot", ".svg"]),
        (["--plot", "/no/such/folder/x.svg"], ["--plot", "no directory"]),
        (["-o", "/no/such/folder/x.json"], ["--output", "no directory"]),
        (["-o", "-", "--format", "csv"], ["--output -", "--format csv"]),
        (["-o", "x.svg", "--plot", "x.svg"], ["--plot", "also --output"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("-") else "",
)
def test_bad_options_are_refused(
    run: Run, arguments: list[str], parts: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    run("sweep", "-", *arguments, stdin=json.dumps(CHAIN).encode()).assert_refused(*parts)


def test_exit_codes_tell_infeasible_from_unknown(run: Run, tiny: str, zoo: Zoo) -> None:
    outcome = run("sweep", tiny, "-b", "1,2")
    assert outcome.code == ExitCode.INFEASIBLE
    assert "minimum budget" in outcome.out
    zoo("idle", lambda problem, options, context: Proposal(termination=Termination.TIME_LIMIT))
    outcome = run("sweep", tiny, "-a", "idle")
    assert outcome.code == ExitCode.UNKNOWN
    assert "no schedule; the budget is at least" in outcome.out


def test_an_interrupt_returns_the_finished_points(run: Run, tiny: str, zoo: Zoo) -> None:
    def stop(problem: Problem, options: None, context: Context) -> Proposal:
        if problem.budget is not None:
            signal.raise_signal(signal.SIGINT)
        return rotor(problem, RotorOptions(), context)

    zoo("stop", stop)
    outcome = run("sweep", tiny, "-a", "stop,keep-all")
    assert outcome.code == ExitCode.OK
    assert "incomplete (interrupted)" in outcome.out
    assert "keep-all" not in outcome.out

    def nothing(problem: Problem, options: None, context: Context) -> Proposal:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    zoo("nothing", nothing)
    assert run("sweep", tiny, "-a", "nothing").code == ExitCode.INTERRUPTED


def test_a_false_claim_is_reported_as_a_bug(run: Run, tiny: str, zoo: Zoo) -> None:
    def lie(problem: Problem, options: None, context: Context) -> Proposal:
        return Proposal(steps=keep_all(problem, None, context).steps, makespan=1)

    zoo("liar", lie)
    outcome = run("sweep", tiny, "-a", "liar")
    assert outcome.code == ExitCode.CLAIM


def test_help_teaches_by_example(run: Run) -> None:
    shown = run("sweep", "--help").out
    assert shown.count("  remat sweep ") >= 4
    for option in ("--algorithms", "--budget", "--points", "--plot", "--format", "--time-limit"):
        assert option in shown


def test_verbose_logs_each_solve(run: Run, tiny: str) -> None:
    assert "rotor at " in run("sweep", tiny, "-v", "-a", "rotor").err


def test_pipelines_have_speed_ups_and_the_memory_of_each_device(run: Run) -> None:
    lines = run("sweep", "example:uniform_p4_m8", "-a", "1f1b", "--points", "2", "--time-limit", "20s").out.splitlines()
    assert lines[0] == "uniform_p4_m8, memory of each device"
    header = next(line for line in lines if line.startswith("budget")).split()
    assert header[:5] == ["budget", "peak", "makespan", "speed-up", "recompute"]
    row = next(line for line in lines if line.split()[-1:] == ["feasible"]).split()
    solved = remat.solve(remat.example("uniform_p4_m8"), algorithm="1f1b")
    assert solved.report is not None
    assert float(row[3]) == pytest.approx(solved.report.run_time / solved.makespan, abs=0.01)


@pytest.mark.slow
def test_speed_ups_leave_out_recomputation(run: Run) -> None:
    given = ("example:gpt2_xl_p8_m32", "--budget", "5GB")
    swept = run("sweep", *given, "-a", "adapipe").out.splitlines()
    row = next(line for line in swept if line.split()[-1:] == ["feasible"]).split()
    solved = run("solve", *given, "-a", "adapipe").out.splitlines()
    printed = next(line for line in solved if line.startswith("speed-up")).split()
    assert any(line.startswith("recompute time") and line.split()[2] != "0" for line in solved)
    assert row[6] == printed[1]
