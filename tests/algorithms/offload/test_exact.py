"""offload-exact against exhaustive search, and by hand."""

import math

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import remat
from tests.algorithms.offload.machines import chains
from tests.oracles.offloading import least_makespan

DRAWS = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "phases": (Phase.explicit, Phase.generate),
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
}


def solve(document, budget, **options):
    return remat.solve(document, algorithm="offload-exact", budget=budget, options=options, time_limit=300)


def least_need(document):
    """Bytes that some task needs in any case, and bytes with which nothing has to move."""
    result = remat.solve(document, algorithm="keep-all")
    return result.memory_bounds["device"].size, result.peak_memory["device"]


def compare(document, share, states, **options):
    """Solve at a share of the way from the least conceivable budget to that of keeping all; compare with the search."""
    low, high = least_need(document)
    budget = low + (high - low) * share // 100
    expected = least_makespan(document, budget, recompute=options.get("recompute", False), states=states)
    if expected is not None and math.isnan(expected):
        return
    result = solve(document, budget, **options)
    if expected is None:
        assert result.status == "infeasible"
    else:
        assert result.makespan == pytest.approx(float(expected), rel=1e-12)
        assert result.optimal_within is not None


@settings(max_examples=60, **DRAWS)
@given(document=chains(largest=3), share=st.integers(0, 70))
def test_equals_exhaustive_search(document, share):
    compare(document, share, 3000)


@settings(max_examples=25, **DRAWS)
@given(document=chains(largest=2), share=st.integers(0, 60))
def test_equals_exhaustive_search_with_recomputation(document, share):
    compare(document, share, 3000, recompute=True, runs=3)
