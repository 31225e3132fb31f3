"""`chen-greedy` and `revolve-chain`: where they cut, and that they keep to the budget."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.chain.revolve_chain import MOST_LIMITS, cut_by_bytes, most_kept
from remat_algorithms.chain.strategies import segmented
from remat_algorithms.kit.binomial import advances
from tests.algorithms.chain.rotor.test_rotor import draw_chain
from tests.algorithms.chain.test_strategies import CHAIN
from tests.seeds import seeds


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


@pytest.mark.parametrize("seed", seeds(20, 300))
def test_no_cut_is_passed_over_that_would_have_won(seed: int) -> None:
    """Kept bytes stay below the peak, and the answer equals that of an exhaustive search over cuts."""
    rng = random.Random(seed)
    document = draw_chain(seed, rng.randint(2, 9))
    problem = make_problem(remat.load(document))
    chain, phases = problem.chain, Phases.of(problem.chain)
    found = []
    for limit in range(int(chain.activation_size[1:].sum() + chain.saved_size.sum()) + 1):
        sizes = chain.activation_size[1:] + np.where(chain.reads_saved & chain.saves, chain.saved_size, 0)
        starts = cut_by_bytes(sizes.tolist(), limit)
        tasks = segmented(chain, starts)
        peak = phases.peak(tasks)
        assert most_kept(chain, starts) <= peak
        found.append((problem.graph.time[tasks].sum(), peak + chain.static_memory))
    for budget in {peak for _, peak in found}:
        result = remat.solve(document, algorithm="chen-greedy", budget=budget)
        tried = [problem.graph.time[segmented(chain, cut)].sum() for cut in _tried(chain, sizes, phases, budget)]
        assert result.makespan == pytest.approx(min(tried)) if tried else result.makespan is None


def _tried(chain: Any, sizes: Any, phases: Phases, budget: int) -> list[tuple[int, ...]]:
    """Return the cuts that the algorithm looks at, and that fit."""
    low, high = max(1, int(sizes.max())), max(1, int(sizes.sum()))
    cuts = {cut_by_bytes(sizes.tolist(), int(limit)) for limit in (0, high, *np.geomspace(low, high, MOST_LIMITS))}
    return [cut for cut in cuts if phases.peak(segmented(chain, cut)) + chain.static_memory <= budget]


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
