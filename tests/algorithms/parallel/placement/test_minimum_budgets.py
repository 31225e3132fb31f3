"""Minimum budgets of parameters: never more than the smallest that a division among the devices needs."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat

SIZES = st.sampled_from([1, 2, 3, 5, 2**40, 2**40 + 1, 2**41, 3 * 2**43 + 1, 2**50 + 3])


def pipeline(sizes, devices):
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "micro_batches": 1,
        "weights": "fixed",
        "layers": [{"forward_time": 1, "parameter_size": size} for size in sizes],
        "cluster": {"devices": [{"name": "gpu", "count": devices}]},
    }


def least_load(sizes, devices):
    """Return the least that the fullest device holds, by trying every division."""
    divisions = product(range(devices), repeat=len(sizes))
    return min(
        max(sum(s for s, on in zip(sizes, homes, strict=True) if on == d) for d in range(devices))
        for homes in divisions
    )


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.lists(SIZES, min_size=1, max_size=5), st.integers(1, 2), st.data())
def test_no_smaller_budget_has_a_schedule(sizes, devices, data):
    least = least_load(sizes, devices)
    budget = data.draw(
        st.sampled_from(sorted({least - 1, max(sizes), min(sizes), (max(sizes) + least) // 2} - {least}))
    )
    found = remat.solve(pipeline(sizes, devices), algorithm="tarnawski-dp", budget=budget)
    if budget >= least:
        return
    assert (found.status, found.least_budget.scope) == ("infeasible", "all schedules")
    assert budget < found.least_budget.size <= least


@pytest.mark.parametrize(("count", "devices"), [(2, 1), (5, 2), (7, 3)])
def test_equal_layers_are_divided_evenly(count, devices):
    size = 2**40
    found = remat.solve(pipeline([size] * count, devices), algorithm="tarnawski-dp", budget=size)
    assert found.least_budget.size == -(-count // devices) * size
