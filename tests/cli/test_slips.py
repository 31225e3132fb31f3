"""Slips of newcomers are met with the remedy, and short answers hide nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import remat
from remat.generate import generate
from remat.report.text.overheads import percent
from remat.solving import portfolio
from remat.solving.verifying import examine
from remat.units import format_percent
from tests.cli.helpers import CHAIN, Run, Save

LLAMA_8B = {
    "preset": "llama-7b-like",
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "key_heads": 8,
    "feedforward": 14336,
    "vocabulary": 128256,
    "sequence": 2048,
    "batch": 1,
}


@pytest.fixture(scope="module")
def llama() -> dict[str, Any]:
    """A step of Llama 3 8B with Adam: 128.5 GB for its parameters alone."""
    return generate("chain", "transformer", **LLAMA_8B)


@pytest.mark.parametrize("command", ["solve", "sweep", "show"])
def test_a_size_that_is_copied_with_its_space_is_met_with_the_remedy(run: Run, tiny: str, command: str) -> None:
    run(command, tiny, "-b", "992.5", "MiB").assert_refused("(MiB); write a size in one word, such as 8MiB")


def test_a_bare_24_is_meant_in_gigabytes(run: Run, save: Save, llama: dict[str, Any]) -> None:
    assert run("show", save(llama), "-b", "24").err == "Warning: --budget: 24 bytes: did you mean 24GB?\n"


LOOP = {
    "schema": "remat.instance/3",
    "kind": "adjoint",
    "steps": 40,
    "units": {"time": "s"},
    "state_size": "2GB",
    "storage": [{"name": "ram", "capacity": "64GB"}, {"name": "disk", "capacity": "500GB", "write_time": 1}],
}
NET = {
    "schema": "remat.instance/3",
    "kind": "pipeline",
    "micro_batches": 2,
    "layers": [{"repeat": 4, "forward_time": 1, "backward_time": 2, "output_size": "1GB", "saved_size": "2GB"}],
    "cluster": {"devices": [{"name": "gpu", "count": 2}], "levels": [{"bandwidth": "1GB/s"}]},
}


@pytest.mark.parametrize(
    ("document", "command"),
    [
        (LOOP, "show FILE -b 24"),
        (LOOP, "show FILE -b disk=24"),
        (LOOP, "solve FILE -a revolve -b 24"),
        (LOOP, "sweep FILE -a revolve -b 24"),
        pytest.param(LOOP, "compare FILE -a revolve -b 24,64GB", marks=pytest.mark.slow),
        (NET, "solve FILE -a 1f1b -b 24"),
        pytest.param(NET, "plan FILE -b 24 -O moves=0 -O zoo=false", marks=pytest.mark.slow),
        pytest.param(NET, "compare FILE -a 1f1b -b 24", marks=pytest.mark.slow),
    ],
)
def test_a_bare_budget_asks_for_its_unit_in_every_command(
    run: Run, save: Save, document: dict[str, Any], command: str
) -> None:
    path = save(document)
    words = [path if word == "FILE" else word for word in command.split()]
    said = "Warning: --budget: 24 bytes: did you mean 24GB?\n"
    assert run(*words).err.startswith(said)
    assert said not in run(*words, "-q").err
    assert said not in run(*[word.replace("24", "24GB") for word in words]).err


def test_a_loop_without_room_for_a_state_is_refused_at_once(
    run: Run, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few quick algorithms always run, at any time limit, and those that name a larger budget run again there."""
    path, ran, original = save(LOOP | {"steps": 300}), list[tuple[int | None, ...]](), portfolio.run

    def noted(problem: Any, solver: Any, *more: Any) -> Any:
        ran.append(tuple(memory.capacity for memory in problem.machine.memories))
        return original(problem, solver, *more)

    monkeypatch.setattr(portfolio, "run", noted)
    outcome = run("solve", path, "-b", "1.9GB", "-b", "disk=0")
    assert outcome.code == 3
    assert "every schedule needs at least 6 GB in all memories together" in outcome.out
    assert ": x0 (2 GB)" in outcome.out
    assert ran.count(ran[0]) <= 4
    ran.clear()
    assert run("solve", path, "-b", "1GB", "-b", "disk=1GB").code == 4  # a state might be divided
    assert ran.count(ran[0]) <= 4
    words = next(line for line in outcome.out.splitlines() if line.startswith("try ")).split()[1:]
    assert run("solve", path, *words, "-a", "h-revolve").code == 0


def test_the_needs_of_an_instance_are_lower_bounds(run: Run, save: Save) -> None:
    out = " ".join(run("show", save(LOOP)).out.split())
    assert "memory bound working: at least 4 GB (3.725 GiB), needed by task B1" in out
    assert "all memories together: at least 6 GB (5.587 GiB), needed by task B" in out
    found = run("show", save(LOOP), "-b", "1GB", "-b", "disk=1000", "--format", "json")
    assert found.document["total_too_small"] is True
    assert found.document["total_need"]["size"] == 6 * 10**9


def test_documents_that_are_no_schedules_are_named(run: Run, tiny: str, save: Save, tmp_path: Path) -> None:
    schedule = str(tmp_path / "schedule.json")
    assert run("solve", tiny, "-a", "keep-all", "-qo", schedule).code == 0
    for command in (("decisions", tiny), ("diff", tiny, schedule), ("layout", tiny), ("verify", tiny, tiny)):
        run(*command).assert_refused("is an instance, not a schedule", f"remat solve {tiny} -o")
    summary = save({"schema": "remat.sweep/1", "curves": []}, "sweep.json")
    run("decisions", summary).assert_refused("is a document 'remat.sweep/1', not a schedule")
    document = json.loads(Path(schedule).read_text())
    run("decisions", schedule).assert_refused("--of", "'tiny'", "is not shipped; give it with --of FILE")
    del document["instance"]
    run("decisions", save(document, "bare.json")).assert_refused("does not name its instance", "--of FILE")
    other = save(CHAIN | {"name": "other", "input_size": 3}, "other.json")
    refused = run("decisions", schedule, "--of", other)
    refused.assert_refused("the schedule is of 'tiny' (digest sha256:", "not of 'other'", "give its own instance")
    assert "the schedule is of 'tiny'" in run("show", schedule, "--of", other).out
    document["steps"] = document["steps"][1:]
    run("decisions", save(document, "cut.json"), "--of", tiny).assert_refused("breaks", "step ", "remat verify")


@pytest.mark.parametrize("given", ["10", "2.5", "1e3"])
def test_bare_numbers_that_may_be_percentages_are_refused(run: Run, tiny: str, given: str) -> None:
    meant = f"{float(given):g}% or {100 * float(given):g}%"
    run("solve", tiny, "--max-overhead", given).assert_refused("--max-overhead", f"may mean {meant}")
    run("solve", tiny, "--gap", given).assert_refused("--gap", f"may mean {meant}")
    assert run("solve", tiny, "-a", "rotor", "--max-overhead", f"{float(given):g}%").code == 0


def test_bare_numbers_that_may_be_percentages_are_refused_in_python() -> None:
    with pytest.raises(remat.OptionError, match="may mean 10% or 1000%"):
        remat.least_budget(CHAIN, max_overhead=10)


def test_quiet_commands_say_nothing(run: Run, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = str(tmp_path / "schedule.json")
    assert run("solve", tiny, "-a", "keep-all", "-qo", schedule).code == 0
    monkeypatch.setenv("HOME", str(tmp_path))
    for asked in (
        ("show", tiny),
        ("show", schedule, "--of", tiny),
        ("show", "--examples"),
        ("verify", tiny, schedule),
        ("decisions", schedule, "--of", tiny),
        ("diff", schedule, schedule, "--of", tiny),
        ("layout", schedule, "--of", tiny),
        ("sweep", tiny, "-a", "keep-all"),
        ("compare", tiny, "-a", "keep-all", "-o", tmp_path / "compared"),
        ("algorithms",),
        ("algorithms", "rotor"),
        ("algorithms", "auto"),
        ("explain", "gap"),
        ("explain",),
        ("completion", "bash", "--install"),
        ("completion", "bash", "--install"),
        ("generate", "tree", "--family", "random", "--nodes", 5, "-o", tmp_path / "tree.json"),
    ):
        outcome = run(*asked, "-q")
        assert (outcome.code, outcome.out, outcome.err) == (0, "", ""), asked


@pytest.mark.parametrize(("given", "per_parameter"), [({}, 4), ({"frozen": True}, 2), ({"parameters": "none"}, 0)])
def test_without_an_optimizer_parameters_and_gradients_stay(given: dict[str, Any], per_parameter: int) -> None:
    """They take 2 bytes each at 16 bit; only frozen ones have no gradients, and only what is left out takes nothing."""
    made = generate("chain", "transformer", optimizer="none", **given)
    assert made.get("static_memory", 0) == per_parameter * 124_439_808


def test_frozen_parameters_take_no_time_for_their_gradients() -> None:
    """A block's backward makes one product of each matrix instead of two; attention has no parameters."""
    trained, frozen = (generate("chain", "transformer", frozen=frozen)["stages"][1] for frozen in (False, True))
    assert frozen["forward_time"] == trained["forward_time"]
    assert trained["forward_time"] < frozen["backward_time"] < trained["backward_time"]
    with pytest.raises(ValueError, match="frozen parameters have no updates and are static memory, not host"):
        generate("chain", "transformer", frozen=True, parameters="host")


def test_a_resnet_without_an_optimizer_keeps_its_weights() -> None:
    bare, plain, left_out = (generate("chain", "resnet", optimizer=name) for name in ("none", "sgd", "omitted"))
    assert bare["static_memory"] == plain["static_memory"] == 2 * 4 * 25_557_032
    assert "static_memory" not in left_out


def test_an_instance_on_a_terminal_asks_for_a_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("generate", "tree", "--family", "random", "--nodes", 5)
    assert run(*asked).document["kind"] == "tree"
    real = sys.stdout
    monkeypatch.setattr(type(real), "isatty", lambda self: True)
    run(*asked).assert_refused("name a file with -o FILE")
    run("import", "matrix", "x.mtx").assert_refused("name a file with -o FILE")
    assert run(*asked, "-o", "-").document["kind"] == "tree"


@pytest.mark.parametrize(
    ("arguments", "offered"),
    [
        (("algorithms", "pofa"), "pofo"),
        (("algorithms", "revolve-chian"), "revolve-chain"),
        (("algorithms", "offload"), None),
        (("algorithms", "checkpoint"), None),
        (("explain", "kernel"), None),
        (("planner",), None),
        (("sovle", "x.json"), "solve"),
        (("show", "example:llama3"), None),
        (("solve", "--buget", "3"), "--budget"),
        (("generate", "dag", "--family", "random", "--heads", "4"), None),
    ],
)
def test_only_what_is_near_is_offered(run: Run, arguments: tuple[str, ...], offered: str | None) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert ("did you mean" in outcome.err) == (offered is not None), outcome.err
    assert offered is None or f"did you mean {offered}?" in outcome.err.replace("'", "")


def test_answers_without_a_schedule_are_shown(run: Run, tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    assert run("solve", tiny, "-b", 3, "-qo", path).code == 3
    for more in ((), ("--of", tiny)):
        outcome = run("show", path, *more)
        assert (outcome.code, outcome.err) == (0, "")
        assert "infeasible, proved over all schedules" in outcome.out
        assert "memory: 3" in outcome.out
        assert "minimum budget" in outcome.out
    assert run("show", path, "--format", "json").document == json.loads(path.read_text())
    run("show", path, "--plot", tmp_path / "x.svg").assert_refused("no pictures")
    run("verify", tiny, path).assert_refused("has no steps", "remat show")


def test_what_is_no_file_points_to_examples_and_generators(run: Run) -> None:
    run("solve", "llama3").assert_refused("'llama3'", "remat show --examples", "remat generate")
    run("solve", "example:llama3").assert_refused("'llama3'", "remat generate")


def test_a_schedule_that_its_file_calls_optimal_is_shown_as_optimal(tmp_path: Path) -> None:
    """Times with a fraction are read as decimals, which equal no float."""
    chain = remat.chain(forward_time=[0.1, 0.2], backward_time=0.7, output_size=4, input_size=4)
    path = tmp_path / "schedule.json"
    found = remat.solve(chain, algorithm="keep-all")
    found.save(path)
    read = examine(chain, str(path)).as_result()
    assert (read.status, read.lower_bound) == (found.status, found.lower_bound)
    assert str(read.status) == "optimal"


def test_what_rounds_to_nothing_has_no_sign() -> None:
    assert [format_percent(share) for share in (-1e-17, -0.0004, -0.0006, 0.166)] == [
        "0.0 %",
        "0.0 %",
        "-0.1 %",
        "16.6 %",
    ]
    assert percent(-1e-12) == "0 %"
