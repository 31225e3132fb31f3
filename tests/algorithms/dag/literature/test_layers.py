"""Compare `layers`, which recomputes whole layers, with hand-computed schedules."""

from __future__ import annotations

from itertools import pairwise

import pytest

import remat
from remat_algorithms.dag.literature.layers import spread
from tests.algorithms.dag.layered_training import layered


def runs(result: remat.Result) -> list[str]:
    return [step["run"] for step in result.to_dict()["steps"] if "run" in step]


def test_layers_are_recomputed_as_by_hand() -> None:
    """Four layers: x0, and in each two values of 10 and its output, of 10 as well; the last output goes to the loss.

    Keeping all holds 10 + 4 * 30 and a byte at the loss. Recomputing a layer spares its 20 bytes and costs 1 + 4.
    """
    document = layered(4)
    plain = remat.solve(document, algorithm="keep-all")
    assert plain.peak_memory == {"memory": 131}
    assert plain.makespan == 4 * 7 + 1 + 4 * 5
    for budget, again in ((130, 1), (111, 1), (110, 2), (91, 2), (71, 3)):
        result = remat.solve(document, algorithm="layers", budget=budget)
        assert result.makespan == plain.makespan + 5 * again
        first = runs(result)
        assert [name for name in first if first.count(name) == 2][: 2 * again] == [
            f"h.{layer}.{place}" for layer in range(again) for place in range(2)
        ]
    # Even then the layer whose backward runs is there as a whole, with inputs of all layers and two gradients.
    assert remat.solve(document, algorithm="layers", budget=62).makespan == plain.makespan + 20
    assert remat.solve(document, algorithm="layers", budget=61).status == "unknown"


def test_each_run_comes_once_more_before_its_layers_backward() -> None:
    result = remat.solve(layered(3), algorithm="layers", budget=61)
    assert runs(result)[10:] == ["h.2.back", "h.1.0", "h.1.1", "h.1.back", "h.0.0", "h.0.1", "h.0.back"]


def test_even_splits_recompute_the_expected_layers() -> None:
    """At the last layer: 40 of inputs, 40 of layers 0 and 2, 20 of recomputed values, and two gradients."""
    result = remat.solve(layered(4), algorithm="layers", budget=102, options={"split": "even"})
    names = runs(result)
    assert {name.split(".")[1] for name in names if names.count(name) == 2} == {"1", "3"}


@pytest.mark.parametrize("count", range(1, 12))
def test_layers_are_spread_evenly(count: int) -> None:
    for many in range(1, count + 1):
        chosen = spread(count, many)
        assert len(set(chosen)) == many
        assert chosen == sorted(chosen)
        gaps = [after - before for before, after in pairwise(chosen)]
        assert max(gaps, default=1) - min(gaps, default=1) <= 1
