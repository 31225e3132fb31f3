"""`chen-greedy` and `revolve-chain`: where they cut, and that they keep to the budget."""

from __future__ import annotations

from typing import Any

import pytest

import remat
from remat_algorithms.chain.revolve_chain import cut_by_bytes
from remat_algorithms.kit.binomial import advances
from tests.algorithms.chain.rotor.test_rotor import draw_chain
from tests.algorithms.chain.test_strategies import CHAIN


def test_segments_end_once_their_bytes_exceed_the_limit() -> None:
    sizes = [4, 1, 1, 6, 2, 2]
    assert cut_by_bytes(sizes, 16) == (0,)
    assert cut_by_bytes(sizes, 5) == (0, 3, 4)
    assert cut_by_bytes(sizes, 0) == (0, 1, 2, 3, 4, 5)


def test_a_given_limit_is_one_schedule() -> None:
    greedy = remat.solve(CHAIN, algorithm="chen-greedy", options={"limit": 5})
    fixed = remat.solve(CHAIN, algorithm="fixed", options={"checkpoints": (3, 6)})
    assert greedy.makespan == fixed.makespan
    assert greedy.peak_memory == fixed.peak_memory


def test_chen_greedy_takes_the_quickest_limit_that_fits() -> None:
    whole = remat.solve(CHAIN, algorithm="store-all")
    peak = whole.peak_memory["memory"]
    assert remat.solve(CHAIN, algorithm="chen-greedy", budget=peak).makespan == whole.makespan
    found = [remat.solve(CHAIN, algorithm="chen-greedy", budget=budget).makespan for budget in range(peak)]
    feasible = [time for time in found if time is not None]
    assert feasible == sorted(feasible, reverse=True)
    assert len(set(feasible)) > 2


@pytest.mark.parametrize("saved", [False, True])
def test_revolve_runs_as_often_as_the_closed_form_says(saved: bool) -> None:
    """Unit sizes and nothing saved: work is 4, each slot is 1, and a leaf runs its own forward once more."""
    stage = {"forward_time": 1, "backward_time": 0, "output_size": 1, "repeat": 12}
    instance: dict[str, Any] = CHAIN | {"stages": [stage]}
    for slots in range(1, 9):
        budget = 1 + 4 + slots - 1
        result = remat.solve(instance, algorithm="revolve-chain", budget=budget, options={"saved": saved})
        assert result.makespan is not None
        expected = advances(13, slots) + 12
        # Ranges that fit into the free slots are saved whole, and spare their sweeps.
        assert result.makespan == expected if not saved else result.makespan <= expected - (3 <= slots <= 5)


def test_least_budgets_suffice() -> None:
    for seed in range(8):
        instance = draw_chain(seed, 6)
        for name in ("chen-greedy", "revolve-chain"):
            answer = remat.solve(instance, algorithm=name, budget=0)
            assert answer.makespan is None
            assert answer.least_budget is not None
            if answer.least_budget.sufficient:
                again = remat.solve(instance, algorithm=name, budget=answer.least_budget.size)
                assert again.makespan is not None
