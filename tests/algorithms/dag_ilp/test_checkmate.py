"""`checkmate` against exhaustive search over its class; back ends against each other; large numbers; limits."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.testing import strategies
from tests.oracles import frontier

CLASS = "frontier-advancing schedules of the reference order"


def draws(count):
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )


def budgets(document, share):
    keep = remat.solve(document, algorithm="keep-all")
    bound = keep.memory_bounds["memory"].size if keep.memory_bounds else 0
    peak = keep.peak_memory["memory"]
    return sorted({budget for budget in (bound, bound + (peak - bound) * share // 100, peak - 1) if budget >= 0})


def one_memory(document):
    return "machine" not in document and not document.get("storage")


def check_optimal(document, share, **options):
    for budget in budgets(document, share):
        expected = frontier.best(document, budget)
        result = remat.solve(document, algorithm="checkmate", budget=budget, options=options)
        assert result.makespan == expected, (budget, result.status, result.scope)
        if expected is None:
            assert result.status == "infeasible"
        else:
            assert result.optimal_within in (CLASS, "all schedules")


DAGS = strategies.dags(largest=6, exact=True).filter(one_memory)


@draws(60)
@given(DAGS, st.integers(0, 99))
def test_equals_exhaustive_search_on_task_graphs(document, share):
    check_optimal(document, share)


@pytest.mark.slow
@draws(400)
@given(strategies.dags(largest=8, exact=True).filter(one_memory), st.integers(0, 99))
def test_equals_exhaustive_search_on_task_graphs_thoroughly(document, share):
    check_optimal(document, share)
