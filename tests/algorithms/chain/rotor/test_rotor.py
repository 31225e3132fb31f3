"""Rotor against reference values, exhaustive search and its own twins."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

import remat
import remat.placement
from remat.instance.lowering.chain_arrays import chain_arrays
from remat.plugin.emit import run_in_order
from remat_algorithms.chain import minimum_memory
from remat_algorithms.chain.minimum_memory import LeastMemory
from remat_algorithms.chain.segments import PERSISTENT, RunList, Segments
from tests import places
from tests.oracles import search
from tests.oracles.persistent import Recursion
from tests.seeds import seeds

REFERENCE = json.loads((places.REFERENCE / "chain.json").read_text())
CASES = [
    pytest.param(case["instance"], point, id=f"{case['instance']['name']}-{point['budget']}")
    for case in REFERENCE["cases"]
    for point in case["budgets"]
]


def draw_chain(seed: int, stages: int, *, largest: int = 9) -> dict[str, Any]:
    """Return a random chain with zero sizes and times now and then, and workspaces that dominate at times."""
    rng = random.Random(seed)

    def size() -> int:
        return rng.choice([0, rng.randint(0, largest), rng.randint(1, largest)])

    return {
        "schema": "remat.instance/1",
        "kind": "chain",
        "units": {"time": "unit", "memory": "unit"},
        "input_size": size(),
        "static_memory": rng.choice([0, 3]),
        "loss": {"time": rng.randint(0, 3), "workspace": size()},
        "stages": [
            {
                "forward_time": rng.randint(0, 9),
                "backward_time": rng.randint(0, 19),
                "output_size": size(),
                "saved_size": size(),
                "forward_workspace": rng.choice([0, size(), 3 * largest]),
                "saving_workspace": size(),
                "saving_forward_time": rng.randint(0, 12),
                "backward_workspace": size(),
                "gradient_size": size(),
            }
            for _ in range(stages)
        ],
    }


def segments_of(document: dict[str, Any]) -> Segments:
    instance = remat.load(document)
    assert isinstance(instance, remat.ChainInstance)
    return Segments.of(chain_arrays(instance))


@pytest.mark.parametrize(("instance", "point"), CASES)
def test_makespans_equal_published_optima(instance: dict[str, Any], point: dict[str, Any]) -> None:
    result = remat.solve(instance, algorithm="rotor", budget=point["budget"])
    assert result.makespan == point["opt_persistent"]
    if not point["feasible"]:
        assert result.scope is not None
        return
    assert result.peak_memory["memory"] <= point["budget"]
    assert remat.verify(instance, result.to_dict()).ok
    if point.get("opt_exhaustive") is not None:
        assert result.makespan >= point["opt_exhaustive"]


@pytest.mark.parametrize("seed", seeds(8, 40))
def test_equals_the_plain_recurrence(seed: int) -> None:
    document = draw_chain(seed, stages=1 + seed % 6)
    least = remat.solve(document, algorithm="rotor", budget=0).least_budget
    whole = remat.solve(document, algorithm="store-all").peak_memory["memory"]
    start = 0 if least is None else least.size
    for budget in range(max(0, start - 1), whole + 2):
        result = remat.solve(document, algorithm="rotor", budget=budget)
        expected = search.persistent_best(document, budget)
        assert result.makespan == expected
        if result.report is not None:
            assert result.optimal_within in (PERSISTENT, "all schedules")


@pytest.mark.parametrize("seed", seeds(20, 30))
def test_least_memory_is_exact(seed: int) -> None:
    document = draw_chain(seed + 100, stages=1 + seed % 7)
    segments = segments_of(document)
    table = LeastMemory.of(segments)
    resident = document["input_size"] + document["static_memory"]
    assert search.persistent_best(document, table.least + resident) is not None
    if table.least:
        assert search.persistent_best(document, table.least + resident - 1) is None
    named = remat.solve(document, algorithm="rotor", budget=table.least + resident)
    assert named.makespan is not None
    runs = RunList(segments, has_saving=True)
    table.schedule(runs)
    graph = named.graph
    placed = remat.placement.place(
        graph,
        named.machine.with_capacities({"memory": table.least + resident}),
        run_in_order(graph, named.machine, runs.tasks),
    )
    assert isinstance(placed, remat.placement.Placement)


@pytest.mark.parametrize("stages", [1, 2, 9, 30])
def test_compiled_least_memory_equals_its_twin(monkeypatch: pytest.MonkeyPatch, stages: int) -> None:
    segments = segments_of(draw_chain(stages, stages, largest=10_000))
    plain = LeastMemory.of(segments)
    monkeypatch.setattr(minimum_memory, "COMPILED_FROM", -1)
    compiled = LeastMemory.of(segments)
    assert np.array_equal(plain.need, compiled.need)
    assert np.array_equal(plain.time, compiled.time)


def test_the_binding_task_is_named() -> None:
    document = json.loads(json.dumps(draw_chain(0, stages=3)))
    for stage in document["stages"]:
        stage |= {"forward_workspace": 0, "saving_workspace": 0, "backward_workspace": 0}
    for key, workspace, task in (
        ("backward_workspace", 500, "B2"),
        ("saving_workspace", 600, "Fe2"),
    ):
        changed = json.loads(json.dumps(document))
        changed["stages"][1][key] = workspace
        answer = remat.solve(changed, algorithm="rotor", budget=400)
        assert answer.status is remat.Status.INFEASIBLE
        assert answer.least_budget is not None
        assert answer.least_budget.task is not None
        assert answer.graph.tasks[answer.least_budget.task] == task
    # A plain forward is unavoidable only where x_2 must be made without saving it.
    changed = json.loads(json.dumps(document))
    changed["loss"]["workspace"] = 700
    answer = remat.solve(changed, algorithm="rotor", budget=400)
    assert answer.least_budget is not None
    assert answer.graph.tasks[answer.least_budget.task or 0] == "loss"


def test_whole_networks_within_their_budgets() -> None:
    gpt2 = remat.example("gpt2s")
    for budget in ("4GiB", "6GiB"):
        result = remat.solve(gpt2, algorithm="rotor", budget=budget)
        assert result.optimal_within == PERSISTENT
        assert remat.verify(gpt2, result.to_dict()).ok
    refused = remat.solve(gpt2, algorithm="rotor", budget="1GiB")
    assert refused.status is remat.Status.INFEASIBLE
    assert refused.least_budget is not None
    assert refused.least_budget.sufficient
    assert refused.graph.tasks[refused.least_budget.task or 0] == "B14"
    assert remat.solve(gpt2, algorithm="rotor", budget=refused.least_budget.size).report is not None
    assert remat.solve(gpt2, algorithm="rotor", budget=refused.least_budget.size - 1).report is None


def test_nothing_is_recomputed_where_everything_fits() -> None:
    document = draw_chain(5, stages=6)
    whole = remat.solve(document, algorithm="store-all")
    result = remat.solve(document, algorithm="rotor", budget=whole.peak_memory["memory"])
    assert result.recompute_time == 0
    assert result.notes == ()


def test_an_expired_deadline_still_gives_a_schedule() -> None:
    document = draw_chain(8, stages=12)
    segments = segments_of(document)
    budget = LeastMemory.of(segments).least + document["input_size"] + document["static_memory"] + 5
    result = remat.solve(document, algorithm="rotor", budget=budget, time_limit=0)
    assert result.report is not None
    assert result.termination == "time limit"


@pytest.mark.parametrize("seed", seeds(15, 25))
def test_whatever_the_backwards_read(seed: int) -> None:
    """No schedule fits below the reported minimum budget, and rotor never beats exhaustive search."""
    rng = random.Random(seed)
    document = draw_chain(seed, 1 + seed % 4) | {"in_place": rng.random() < 0.5}
    for stage in document["stages"]:
        stage["backward_reads"] = [key for key in ("input", "output", "saved") if rng.random() < 0.6]
    answer = remat.solve(document, algorithm="rotor", budget=0)
    least = answer.least_budget
    if least is None:
        return
    whole = remat.solve(document, algorithm="rotor").peak_memory["memory"]
    for budget in range(least.size, whole + 2, 2):
        result = remat.solve(document, algorithm="rotor", budget=budget)
        best = search.chain_best(document, budget)
        assert result.makespan is not None
        assert best is not None
        assert result.makespan >= best
        if answer.scope == PERSISTENT:
            assert result.peak_memory["memory"] >= least.size


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_unread_values_and_in_place(step: int) -> None:
    """Backwards that do not read their input, output or saved values; outputs in place of inputs."""
    for reads in ([], ["input"], ["output"], ["saved"], ["input", "saved"]):
        for in_place in (False, True):
            document = draw_chain(11, stages=5) | {"backward_reads": reads, "in_place": in_place}
            least = remat.solve(document, algorithm="rotor", budget=0).least_budget
            assert least is not None
            for budget in range(least.size, least.size + 20, step):
                result = remat.solve(document, algorithm="rotor", budget=budget)
                assert result.report is not None
                best = search.chain_best(document, budget)
                assert best is not None
                assert result.makespan is not None
                assert result.makespan >= best


def test_an_input_far_larger_than_all_else() -> None:
    """Dropping x_0 frees more than all other values take, so free memory next to x_0 may be negative."""
    document = draw_chain(3, stages=4) | {"input_size": 10**15}
    document["stages"][0]["backward_reads"] = ["output", "saved"]
    recursion = Recursion(document)
    low = remat.solve(document, algorithm="rotor", budget=0).least_budget
    high = remat.solve(document, algorithm="rotor").peak_memory["memory"]
    assert low is not None
    assert low.size > 10**15
    for budget in range(low.size, high + 1):
        result = remat.solve(document, algorithm="rotor", budget=budget)
        assert result.makespan == recursion.least_time(budget)


def test_old_options_are_gone() -> None:
    for name, value in (("slots", 100), ("certificate", False)):
        with pytest.raises(remat.OptionError, match=f"rotor's option '{name}' is gone: fronts are exact"):
            remat.solve(draw_chain(1, 2), algorithm="rotor", options={name: value})
