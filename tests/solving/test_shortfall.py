"""Explanations of small budgets: the parts agree with the instance, and suggested commands work."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import remat
from remat.cli.main import main
from remat.generate import generate
from remat.generate.source_command import generated_by
from remat.report.text.summary import summary
from remat.solving.shortfall import MOST_NAMED, Shortfall, shortfall_of
from remat.solving.verifying import verify
from remat.verifier import Report
from tests import places

SMALL = {"layers": 2, "hidden": 64, "heads": 4, "sequence": 32, "vocabulary": 100, "batch": 4}


def transformer(**more: Any) -> dict[str, Any]:
    return dict(generate("chain", "transformer", **SMALL, **more))


HOSTED = {
    "memories": [{"name": "device"}, {"name": "host"}],
    "processors": [{"name": "gpu", "memory": "device"}],
    "links": [{"source": a, "target": b, "bandwidth": 9} for a, b in (("device", "host"), ("host", "device"))],
}


def drawn_chain(seed: int) -> dict[str, Any]:
    return dict(generate("chain", "random", length=3 + seed, seed=seed))


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    **{f"chain-{seed}": (lambda seed=seed: drawn_chain(seed), {"budget": 5 + 40 * seed}) for seed in range(4)},
    "static": (lambda: transformer(), {"budget": "300kB"}),
    "frozen": (lambda: transformer(frozen=True), {"budget": "100kB"}),
    "values": (lambda: transformer(parameters="device", states="device"), {"budget": {"device": "300kB"}}),
    "two memories": (
        lambda: transformer(parameters="device", states="host"),
        {"budget": {"device": "100kB", "host": "100MB"}, "time_limit": 2},
    ),
    **{
        f"adjoint-{slots}": (lambda: generate("adjoint", "uniform", steps=9), {"budget": slots}) for slots in (1, 2)
    },
    **{
        f"tree-{seed}": (lambda seed=seed: generate("tree", "random", nodes=20, seed=seed), {"budget": 9})
        for seed in (1, 2)
    },
    **{
        f"graph-{seed}": (
            lambda seed=seed: generate("dag", "layered", nodes=12, seed=seed),
            {"budget": "20%", "time_limit": 2},
        )
        for seed in (1, 2, 3)
    },
    "unknown graph": (
        lambda: generate("dag", "layered", nodes=30, seed=5),
        {"budget": "60%", "algorithm": "linearized-greedy"},
    ),
    "strategy": (lambda: transformer(), {"budget": "420kB", "algorithm": "keep-all"}),
    "loop": (lambda: generate("adjoint", "uniform", steps=12, storage="ram:slots=0"), {"budget": 0}),
    "loop of two levels": (
        lambda: generate("adjoint", "uniform", steps=12, storage="ram:slots=0;disk:slots=0,write_time=1"),
        {"budget": {"ram": 0}, "time_limit": 2},
    ),
    "device with a host": (lambda: drawn_chain(2) | {"machine": HOSTED}, {"budget": {"device": 40}, "time_limit": 2}),
    "device and host": (
        lambda: drawn_chain(1) | {"machine": HOSTED},
        {"budget": {"device": "45%", "host": 1}, "time_limit": 2},
    ),
    "pipeline of small devices": (
        lambda: generate("pipeline", "transformer", **{**SMALL, "batch": 1}, devices=2, micro_batches=2),
        {"budget": "500kB", "algorithm": "1f1b"},
    ),
    "join": (lambda: generate("join", "siamese", depth="18", image=32, batch=1), {"budget": "1MB", "time_limit": 1}),
    **{
        f"pipeline-{devices}": (
            lambda devices=devices: generate("pipeline", "transformer", devices=devices, micro_batches=4),
            {"budget": "700MB", "time_limit": 2},
        )
        for devices in (2, 4)
    },
}  # fmt: skip


LONG = ("values", "two memories", "join", "pipeline-2", "pipeline-4")


def check_need(found: Shortfall, report: Report) -> None:
    """Compare a need with what the verifier measures on the schedule of the suggestion."""
    assert report.ok
    peaks = report.peak_memory
    if found.memory:
        suggested = found.budget.get(found.memory, found.budget.get("", 0))
        assert peaks[found.memory] <= suggested
        assert not found.proved or found.need <= max(peaks.values() if "" in found.budget else [peaks[found.memory]])
    else:
        assert found.proved
        assert found.need <= sum(peaks.values())
    static = sum(part.size for part in found.parts if part.what == "static memory")
    assert static <= sum(peaks.values())


@pytest.mark.parametrize("case", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in CASES])
def test_the_parts_are_those_of_the_instance_and_the_suggestion_works(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, asked = CASES[case]
    document = make()
    result = remat.solve(document, **asked)
    assert result.report is None, "the case is none"
    found = result.shortfall
    assert found is not None
    parts = {part.what: part.size for part in found.parts}
    assert sum(parts.values()) == found.need > found.capacity
    assert list(parts.values()) == sorted(parts.values(), reverse=True)
    graph = result.graph
    first = result.machine.memories[0].name
    static = document.get("static_memory", 0) if found.memory in (first, "") else 0
    assert parts.get("static memory", 0) == static
    if found.task is not None:
        size = dict(zip(graph.values, graph.size.tolist(), strict=True))
        reads = {graph.values[value] for value in graph.reads[found.task].tolist()}
        writes = {graph.values[value] for value in graph.writes[found.task].tolist()}
        assert parts.get("read", 0) == sum(size[value] for value in reads)
        named = {value for part in found.parts if part.what in ("read", "written") for value in part.values}
        assert named <= reads | writes
        assert parts.get("written", 0) <= sum(size[value] for value in writes - reads)
        assert parts.get("workspace", 0) <= graph.workspace[found.task]
    for part in found.parts:
        assert len(part.values) <= MOST_NAMED
        known = found.task is not None  # else nothing is known of what lies there
        assert part.values or part.what not in ("read", "written", *(["kept for other tasks"] if known else []))
    # The suggestion, as it is printed, pasted.
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(document))
    shown = summary(result, option="--budget ")
    assert "why" in shown
    line = next(line for line in shown.splitlines() if line.startswith("try "))
    more = ["-a", asked["algorithm"]] if "algorithm" in asked else []
    capsys.readouterr()
    plan = tmp_path / "plan.json"
    words = [*shlex.split(line.removeprefix("try ")), *more, "--time-limit", "5s", "--gap", "100%", "-o", str(plan)]
    assert main(["solve", str(path), *words]) == 0
    check_need(found, verify(document, json.loads(plan.read_text())))


def test_the_states_of_a_generated_transformer_are_told_apart() -> None:
    made = transformer()
    found = remat.solve(made, budget="300kB").shortfall
    assert found is not None
    count = made["static_memory"] // 16
    assert found.cause.what == "static memory"
    assert found.split == {"parameters": 2 * count, "gradients": 2 * count, "optimizer states": 12 * count}
    text = remat.solve(made, budget="300kB").summary()
    assert re.search(r"static memory, which is permanent", text)


def test_remedies_report_sufficient_memory() -> None:
    """The need that a remedy reports is at most the peak of a schedule of the changed instance."""
    made = transformer()
    found = remat.solve(made, budget="300kB").shortfall
    assert found is not None
    needs = {remedy.what: remedy.need for remedy in found.remedies}
    states = needs["gradients and optimizer states at the host"]
    changed = transformer(parameters="device", states="host")
    peak = remat.solve(changed, algorithm="zero-offload", budget={"device": None}).peak_memory["device"]
    assert states <= peak < found.need
    assert needs["parameters at the host, too"] < states
    found = remat.solve(made, budget=made["static_memory"] * 3 // 4).shortfall
    assert found is not None
    needs = {remedy.what: remedy.need for remedy in found.remedies}
    name, shared = next((what, need) for what, need in needs.items() if "ZeRO" in what)
    ranks = int(name.split()[0])
    total = sum(found.split.values())
    assert shared == found.need - total + -(-total // ranks) <= found.capacity


def test_a_batch_that_fits_is_named_or_said_to_be_in_vain() -> None:
    made = transformer()
    static = made["static_memory"]
    for budget, helps in ((static // 2, False), (static * 11 // 10, True)):
        found = remat.solve(made, budget=budget).shortfall
        if found is None:
            pytest.fail("the budget is too large for a case")
        batch = next(remedy for remedy in found.remedies if "batch" in remedy.what)
        assert batch.helps == helps


def test_gradients_that_may_leave_for_a_host_do_not_exclude_a_smaller_batch() -> None:
    made = transformer(parameters="host", states="host") | {}
    made["stages"][1]["repeat"] = 4
    found = remat.solve(made, budget={"device": "300kB"}, time_limit=2).shortfall
    assert found is not None
    assert found.split["gradients"] > found.capacity
    batch = next(remedy for remedy in found.remedies if "batch" in remedy.what)
    assert batch.helps


def test_every_kind_of_answer_is_a_case() -> None:
    assert len(CASES) >= 20


def test_the_summary_in_json_has_the_shortfall_or_the_decisions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are added to the documents that readers know."""
    schema = json.loads((places.ROOT / "docs" / "schema" / "remat.summary-1.json").read_text())
    loop, loops = generate("adjoint", "uniform", steps=12, storage="ram:slots=0"), []
    for document, budget in ((transformer(), "300kB"), (transformer(), "10MB"), (loop, "0")):
        path = tmp_path / "instance.json"
        path.write_text(json.dumps(document))
        main(["solve", str(path), "-b", budget, "--format", "json"])
        found = json.loads(capsys.readouterr().out)
        jsonschema.validate(found, schema)
        loops.append(found)
    static, solved, together = loops
    assert "decisions" not in static
    assert static["shortfall"]["parts"][0]["what"] == "static memory"
    assert static["shortfall"]["budget"] == {"memory": static["least_budget"]["size"]}
    assert "shortfall" not in solved
    assert [group["text"] for group in solved["decisions"]]
    assert together["shortfall"]["memory"] is None
    assert together["total_bound"]["size"] == together["shortfall"]["need"] == 3
    assert together["shortfall"]["task"] == together["total_bound"]["task"]


def test_answers_with_a_schedule_lack_nothing() -> None:
    assert shortfall_of(remat.solve(transformer(), budget="10MB")) is None


@pytest.mark.slow
def test_a_plan_that_is_not_found_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps(generate("pipeline", "transformer", devices=2, micro_batches=4)))
    assert main(["plan", str(path), "-b", "1GB", "--patience", "1s", "--time-limit", "4s"]) == 3
    out = capsys.readouterr().out
    assert "why " in out
    assert "every schedule needs at least" in out
    assert "at least 3 devices" in out
    budget = re.search(r"^try +--budget ([0-9]+)$", out, re.MULTILINE)
    assert budget is not None
    assert main(["plan", str(path), "-b", budget[1], "--time-limit", "5s"]) == 0


@pytest.mark.parametrize("seed", range(8))
def test_generated_instances_are_made_again_from_their_source(seed: int) -> None:
    draw = random.Random(seed)
    given: dict[str, Any] = {
        "layers": draw.randint(1, 4),
        "flash": draw.random() < 0.5,
        "dtype": draw.choice(["fp32", "bf16"]),
        "bandwidth": draw.choice([None, 1e12, 2.5e11]),
        "frozen": draw.random() < 0.5,
    }
    chosen = {key: value for key, value in given.items() if value is not None}
    made = generate("chain", "transformer", name="it's", **chosen)
    read = generated_by(made["source"])
    assert read is not None
    kind, family, parameters = read
    assert generate(kind, family, name="it's", **parameters) == made


@pytest.mark.parametrize("words", ["chain --family gone", "chain --family transformer --gone 3", "chain", "'"])
def test_other_sources_are_not_read(words: str) -> None:
    assert generated_by("by hand") is None
    assert generated_by(f"generated by: remat generate {words}") is None
