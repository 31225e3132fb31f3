"""Reference values: peaks of small graphs, of trees, of assembly trees."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import remat
from tests import places

REFERENCE = places.REFERENCE
VALUES = json.loads((REFERENCE / "tree.json").read_text())
ASSEMBLY = json.loads((REFERENCE / "assembly_trees.json").read_text())
HEURISTICS = ("dag-order-greedy", "dag-order-lpmf")


def graph_of(case: dict[str, Any]) -> dict[str, Any]:
    """Shared outputs are freed after their last use; those of the sinks stay."""
    reads: list[list[str]] = [[] for _ in range(case["n"])]
    sinks = set(range(case["n"]))
    for source, target in case["edges"]:
        reads[target].append(f"t{source}")
        sinks.discard(source)
    tasks = [
        {"id": f"t{i}", "time": 1, "size": f, "reads": reads[i], "workspace": m}
        for i, (f, m) in enumerate(zip(case["f"], case["m"], strict=True))
    ]
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "name": case["id"],
        "units": {"time": "unit", "memory": "unit"},
        "values": [],
        "tasks": tasks,
        "outputs": [f"t{i}" for i in sorted(sinks)],
    }


@pytest.mark.parametrize("case", VALUES["dags"], ids=lambda case: case["id"])
def test_exact_peaks_of_graphs(case: dict[str, Any]) -> None:
    document, optimum = graph_of(case), case["optimal_peak"]
    result = remat.solve(document, algorithm="dag-order-exact")
    assert result.peak_memory == {"memory": optimum}
    assert str(result.termination) == "completed"
    for name in HEURISTICS:
        assert remat.solve(document, algorithm=name).peak_memory["memory"] >= optimum
    try:
        found = remat.solve(document, algorithm="sp-order")
    except remat.OptionError:
        assert case["kind"] != "sp"
    else:
        assert found.peak_memory["memory"] == optimum


@pytest.mark.parametrize("case", VALUES["dags"], ids=lambda case: case["id"])
def test_least_budget_is_the_optimum(case: dict[str, Any]) -> None:
    document, optimum = graph_of(case), case["optimal_peak"]
    assert str(remat.solve(document, algorithm="dag-order-exact", budget=optimum).status) == "optimal"
    short = remat.solve(document, algorithm="dag-order-exact", budget=optimum - 1)
    assert short.scope is not None
    assert short.least_budget is not None
    if short.scope == "schedules without recomputation":
        assert (short.least_budget.size, short.least_budget.sufficient) == (optimum, True)
        assert short.least_budget.task is not None


@pytest.mark.parametrize("orientation", ["in", "out"])
def test_trees_are_series_parallel(orientation: str) -> None:
    for case in VALUES["trees"]:
        result = remat.solve(case["instance"] | {"orientation": orientation}, algorithm="sp-order")
        assert result.peak_memory["memory"] == case["optimal_peak"]


def test_lpmf_is_the_best_postorder_of_a_tree() -> None:
    for case in VALUES["trees"]:
        result = remat.solve(case["instance"], algorithm="dag-order-lpmf")
        assert result.peak_memory["memory"] == case["best_postorder_peak"]


@pytest.mark.parametrize("name", ASSEMBLY)
def test_sp_order_is_optimal_on_assembly_trees(name: str) -> None:
    if "REMAT_DATA" not in os.environ:
        pytest.skip("REMAT_DATA is not set")
    path = Path(os.environ["REMAT_DATA"]) / "trees" / f"{name}.json.gz"
    assert remat.solve(path, algorithm="sp-order").peak_memory["memory"] == ASSEMBLY[name]["optimal_peak"]
