"""Published and brute-forced peaks: best post-order and optimum, through `remat.solve`."""

import os
from pathlib import Path

import pytest

import remat
from remat.generate import generate
from tests.algorithms.tree.trees import document, reference

TREES = reference("tree")
ASSEMBLY = reference("assembly_trees")
EXACT = ("liu", "minmem")


def peaks(instance):
    """Return the peaks of the best post-order and of the exact algorithms, which must agree."""
    best = remat.solve(instance, algorithm="liu-postorder")
    optimal = [remat.solve(instance, algorithm=name) for name in EXACT]
    assert optimal[0].peak_memory == optimal[1].peak_memory
    assert {result.status for result in (best, *optimal)} == {"optimal"}  # in time: there is nothing to recompute
    return best.peak_memory["memory"], optimal[0].peak_memory["memory"]


@pytest.mark.parametrize("case", TREES["trees"], ids=lambda case: case["instance"]["name"])
def test_peaks_equal_published_ones(case):
    assert peaks(case["instance"]) == (case["best_postorder_peak"], case["optimal_peak"])


@pytest.mark.parametrize("case", TREES["trees"][::7], ids=lambda case: case["instance"]["name"])
def test_peaks_of_out_trees_equal_published_ones(case):
    outward = case["instance"] | {"orientation": "out"}
    assert peaks(outward) == (case["best_postorder_peak"], case["optimal_peak"])


@pytest.mark.parametrize("case", TREES["adversarial"], ids=lambda case: f"K{case['K']}-b{case['b']}")
def test_family_on_which_postorder_is_bad(case):
    depth, branches, memory, epsilon = (case[key] for key in ("K", "b", "M", "eps"))
    instance = generate("tree", "postorder-trap", depth=depth, branches=branches, memory=memory, epsilon=epsilon)
    assert len(instance["parent"]) == case["n"]
    assert peaks(instance) == (case["best_postorder_peak"], case["optimal_peak"])
    postorder = memory + epsilon + depth * (branches - 1) * memory // branches
    assert peaks(instance) == (postorder, memory + epsilon + depth * (branches - 1) * epsilon)


@pytest.mark.parametrize("case", TREES["closed_form"], ids=lambda case: case["name"])
def test_peaks_equal_closed_forms(case):
    assert peaks(document(case["parent"], case["f"], case["m"])) == (case["peak"], case["peak"])


@pytest.mark.parametrize("name", ASSEMBLY)
def test_peaks_of_assembly_trees_equal_published_ones(name):
    data = os.environ.get("REMAT_DATA")
    if not data:
        pytest.skip("REMAT_DATA is not set")
    case = ASSEMBLY[name]
    instance = remat.load(Path(data) / "trees" / f"{name}.json.gz")
    assert len(instance.parent) == case["n"]
    assert peaks(instance) == (case["best_postorder_peak"], case["optimal_peak"])
