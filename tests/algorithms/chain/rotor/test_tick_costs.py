"""Test times in ticks on chains where some options take orders of magnitude longer than the rest."""

import random

import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain.rotor.tick_costs import MOST_BITS, Costs
from remat_algorithms.chain.segments import PERSISTENT, Segments
from tests.oracles.persistent import Recursion


def slow_chain(draw, *, whole, orders):
    """Draw a short chain in which some variants need less memory and take up to so many orders longer."""

    def time(most=9):
        return draw.randint(0, most) if whole else draw.random() * most

    def slower():
        factor = 10.0 ** draw.uniform(0, orders)
        return int(factor) if whole else factor

    stages = []
    for _ in range(draw.randint(2, 4)):
        stage = {"forward_time": time(), "backward_time": time(), "output_size": draw.randint(0, 6)}
        stage["saved_size"] = draw.randint(2, 9)
        variants = [
            {"saved_size": draw.randint(0, 3), "backward_time": slower(), "saving_forward_time": slower()}
            for _ in range(draw.randint(0, 2))
        ]
        stages.append(stage | {"variants": [{}, *variants]})
    return {"schema": "remat.instance/1", "kind": "chain", "input_size": draw.randint(0, 4), "stages": stages}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(100, 240), marks=pytest.mark.slow)])
def test_the_optimum_whatever_the_slowest_way_takes(seeds, whole):
    for seed in seeds:
        draw = random.Random(f"{seed}/{whole}")
        document = slow_chain(draw, whole=whole, orders=18 if whole else 20)
        recursion = Recursion(document)
        most = remat.solve(document, algorithm="rotor").peak_memory["memory"]
        for budget in sorted({most - 1, most // 2, draw.randint(0, most)}):
            result = remat.solve(document, algorithm="rotor", budget=budget)
            best = recursion.least_time(budget)
            if best is None:
                assert result.columns is None
            else:
                assert result.makespan == pytest.approx(best, rel=1e-12)
                assert result.optimal_within is not None or best > 2**50


def test_whole_times_near_the_largest_are_no_overflow():
    stage = {"forward_time": 2**61, "backward_time": 2**61, "output_size": 1, "saved_size": 1}
    slow = stage | {"variants": [{}, {"backward_time": 2**62, "saved_size": 0}]}
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "stages": [slow] * 4}
    for budget in (None, 12, 9, 8, 7, 6, 5):
        result = remat.solve(document, algorithm="rotor", budget=budget)
        assert result.columns is None or result.optimal_within == PERSISTENT or result.makespan > 2**62


def test_ticks_add_up_within_the_range():
    for seed in range(40):
        draw = random.Random(seed)
        document = slow_chain(draw, whole=bool(seed % 2), orders=18 if seed % 2 else 280)
        segments = Segments.of(make_problem(remat.load(document)).chain)
        for longest in (0.0, 1e9, 1e290):
            costs = Costs.of(segments, longest=longest)
            terms = segments.length + 2
            assert 0 <= int(costs.way.max()) * terms + costs.whole * terms <= 2 ** (MOST_BITS + 2)
            assert int(costs.leaf.min()) >= 0
