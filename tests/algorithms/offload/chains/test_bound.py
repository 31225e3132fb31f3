"""Test that bounds of chains with host memory never exceed, and mostly equal, exhaustive search."""

import math
import random

import pytest

import remat
from remat.plugin import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain.bounds.moment_facts import Moments
from remat_algorithms.chain.bounds.one_moment import least_remade
from remat_algorithms.dag.moments.program_solution import Effort
from remat_algorithms.offload.chains.bound import ChainBound
from remat_algorithms.offload.chains.chain_moments import setting_of
from tests.algorithms.offload import small_chains
from tests.oracles import offloading
from tests.seeds import few

STATES = 10_000
"""States that exhaustive search looks at; what takes more is left out."""


def drawn(draw):
    """Draw a small chain, a machine of any kind, and a budget at which something has to go."""
    stages = []
    for _ in range(draw.choice([1, 2, 2, 3, 3])):
        one = small_chains.stage(draw.randint(0, 4), draw.randint(0, 4), draw.choice([0, 1, 2, 2, 3, 3]))
        more = {
            "saved_size": (2, draw.randint(0, 3)),
            "backward_workspace": (6, draw.randint(0, 3)),
            "forward_workspace": (6, draw.randint(0, 2)),
            "saving_forward_time": (2, draw.randint(0, 5)),
            "gradient_size": (3, draw.randint(0, 2)),
            "backward_reads": (4, [kind for kind in ("input", "output", "saved") if draw.random() < 0.5]),
        }
        stages.append(one | {key: value for key, (odds, value) in more.items() if draw.randrange(odds) == 0})
    traits = {"in_place": True} if draw.randrange(4) == 0 else {}
    loss = {"time": draw.randint(0, 2)}
    document = small_chains.chain(
        *stages, machine=small_chains.any_machine(draw), input_size=draw.randint(0, 3), loss=loss, **traits
    )
    keep = remat.solve(document, algorithm="keep-all")
    low, high = keep.memory_bounds["device"].size, keep.peak_memory["device"]
    return document, draw.randint(low, max(low, (low + high) // 2))


def compare(draw):
    """Return the optimum over the time without recomputation, and whether it is proved; None if it is unknown."""
    document, budget = drawn(draw)
    best = offloading.least_makespan(document, budget, recompute=True, states=STATES)
    if isinstance(best, float) and math.isnan(best):
        return None
    problem = make_problem(remat.load(document), budget=budget)
    bound = ChainBound(problem)
    bound.relax(lambda: False)
    relaxed = bound.value
    bound.whole(1.0, Context(), lambda: False)
    best = math.inf if best is None else best
    assert relaxed <= bound.value <= best
    assert not bound.impossible or best == math.inf
    if bound.setting is not None:
        length = problem.chain.length
        moments = sorted(draw.sample(range(length, 2 * length + 1), min(2, length + 1)))
        tasks = [task for task in bound.setting.facts.order if task in moments]
        several = bound.setting.ask(tasks, Effort(), stopped=lambda: False)
        assert bound.setting.makespan(several.bound) <= best
    return best - problem.no_recompute_time, bound.value == best


def shares_met(seeds):
    """Return how many drawn chains need extra time, how often the bound is exact, and how many are unknown."""
    found = [compare(random.Random(seed)) for seed in seeds]
    costly = [pair for pair in found if pair is not None and 0 < pair[0] < math.inf]
    return len(costly), sum(met for _, met in costly), found.count(None)


@pytest.mark.parametrize("count", few(8, 20))
def test_never_above_exhaustive_search(count):
    costly, met, unknown = shares_met(range(count))
    assert costly > 3 * count // 20
    assert met > 0
    assert unknown < count // 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_never_above_exhaustive_search_thoroughly(part):
    costly, met, _ = shares_met(range(1000 + 200 * part, 1200 + 200 * part))
    assert costly > 60
    assert met > 5


def without_room(draw, stages):
    """Draw a chain with a full host, and a budget."""
    listed = [
        small_chains.stage(
            draw.randint(1, 9),
            draw.randint(1, 9),
            draw.randint(1, 9),
            saved_size=draw.randint(0, 9),
            saving_forward_time=draw.randint(1, 9),
            backward_reads=draw.choice([["input", "saved"], ["output", "saved"], ["input"], ["saved"]]),
        )
        for _ in range(stages)
    ]
    document = small_chains.chain(*listed, machine=small_chains.machine(host=0))
    keep = remat.solve(document, algorithm="keep-all")
    low, high = keep.memory_bounds["device"].size, keep.peak_memory["device"]
    return document, draw.randint(low, max(low, high - 1))


@pytest.mark.parametrize("seed", range(12))
def test_without_room_elsewhere_the_bound_is_that_of_one_memory(seed, monkeypatch):
    monkeypatch.setattr("remat_algorithms.offload.chains.bound.WHOLE", 7)
    document, budget = without_room(random.Random(seed), 6)
    problem = make_problem(remat.load(document), budget=budget)
    moments = Moments.of(problem.chain, budget)
    alone = problem.no_recompute_time + moments.time(max(least_remade(moments)))
    bound = ChainBound(problem)
    bound.relax(lambda: False)
    assert bound.value <= alone
    bound.whole(10.0, Context(), lambda: False)
    assert bound.value == alone


@pytest.mark.parametrize("algorithm", ["remat-offload-best", "pofo", "offload-dp"])
def test_what_meets_the_bound_is_optimal(algorithm):
    # x1 leaves and is back in time: nothing has to wait.
    result = remat.solve(small_chains.one_big_value(), algorithm=algorithm, budget={"device": 17})
    assert result.makespan == result.lower_bound
    assert result.status == "optimal"


@pytest.mark.parametrize("algorithm", ["remat-offload-best", "pofo"])
def test_gaps_are_told(algorithm):
    document, budget = without_room(random.Random(3), 6)
    options = {"iterations": 20} if algorithm == "remat-offload-best" else {}
    result = remat.solve(document, algorithm=algorithm, budget=budget, options=options)
    assert result.no_recompute_time < result.lower_bound <= result.makespan


def test_without_a_budget_there_is_no_program():
    document = small_chains.chain(small_chains.stage(1, 1, 1), machine=small_chains.machine())
    problem = make_problem(remat.load(document), budget=10)
    assert setting_of(problem) is not None
    assert setting_of(make_problem(remat.load(document))) is None


def test_what_fits_nowhere_is_infeasible():
    # Drawn: the device alone would hold each run, and the host is too small for the rest.
    stages = [
        small_chains.stage(1, 0, 0),
        small_chains.stage(0, 3, 2, saving_forward_time=1, gradient_size=2),
        small_chains.stage(2, 3, 3, saved_size=3),
    ]
    machine = small_chains.machine(bandwidth=(2, 1), host=2)
    document = small_chains.chain(*stages, machine=machine, input_size=3, loss={"time": 1}, in_place=True)
    result = remat.solve(document, algorithm="remat-offload-best", budget=11)
    assert result.status == "infeasible"
    assert result.least_budget.size == 12
    assert offloading.least_makespan(document, 11, recompute=True) is None
