"""The bound on all memories together: below every schedule, and equal to the least that any needs where it decides."""

import math
import random

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import remat
from remat.errors import ClaimError
from remat.generate import generate
from remat.solving.problem_setup import make_problem
from remat.testing import strategies
from tests.algorithms.dag.moments import drawn
from tests.oracles import offloading

QUICK = settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])


def most_together(result):
    """Return the most bytes of all memories at one instant; at instants of several changes, each memory's largest."""
    profiles = result.report.profiles.values()
    instants = np.unique(np.concatenate([profile.time for profile in profiles] or [np.zeros(1)]))
    total = np.zeros(len(instants), dtype=object)
    for profile in profiles:
        for k, instant in enumerate(instants.tolist()):
            now = profile.size[profile.time == instant]
            before = profile.size[profile.time < instant][-1:]
            total[k] += int(max([*now.tolist(), *before.tolist()], default=0))
    return int(max(total))


def check(document, algorithms):
    problem = make_problem(remat.load(document))
    bound = problem.total_bound
    assert bound is None or len(problem.machine.memories) > 1
    for algorithm in algorithms if bound is not None else ():
        try:
            found = remat.solve(document, algorithm=algorithm, time_limit=1)
        except (remat.OptionError, ClaimError):
            continue
        if found.report is not None:
            assert bound.size <= most_together(found)


@QUICK
@given(strategies.adjoints(exact=True, taped=False))
def test_below_schedules_of_time_loops(document):
    check(document, ("store-all", "recompute-all", "revolve", "h-revolve", "walther-griewank"))


@settings(QUICK, max_examples=8)
@given(strategies.chains(exact=True), st.integers(1, 9))
def test_below_schedules_of_chains(document, bandwidth):
    links = [{"source": a, "target": b, "bandwidth": bandwidth} for a, b in (("device", "host"), ("host", "device"))]
    machine = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": links,
    }
    check(document | {"machine": machine}, ("keep-all", "offload-greedy", "rotor"))


@pytest.mark.parametrize("seed", range(6))
def test_below_schedules_of_pipelines(seed):
    draw = random.Random(seed)
    document = generate(
        "pipeline", "transformer", layers=2, hidden=64, heads=4, sequence=32, vocabulary=100, devices=2,
        micro_batches=draw.randint(1, 3), split=draw.random() < 0.5, weights=draw.choice(["flush", "stash"]),
    )  # fmt: skip
    problem = make_problem(remat.load(document))
    assert (problem.total_bound is None) == problem.instance.is_stream
    if problem.total_bound is not None:
        check(document, ("1f1b", "gpipe", "pipe-search"))
        states = sum(
            size for name, size in zip(problem.graph.values, problem.graph.size, strict=True) if name[0] in "wo"
        )
        assert problem.total_bound.size > states


def test_a_time_loop_by_hand():
    """While the first adjoint is computed, its state, the adjoint and the initial state exist."""
    for steps, needed in ((1, 1), (2, 2), (3, 3), (7, 3), (60, 3)):
        problem = make_problem(remat.load(generate("adjoint", "uniform", steps=steps, storage="ram:slots=0")))
        assert problem.total_bound.size == needed
        assert (problem.exceeded is None) == (steps < 3)


def test_every_schedule_of_tiny_graphs_needs_as_much():
    """Where all memories together hold a byte less than the bound, exhaustive search finds no schedule."""
    refuted = met = 0
    for seed in range(300):
        draw = random.Random(seed)
        document = drawn.graph(draw, 3, alternatives=seed % 2 == 1, host=True)
        problem = make_problem(remat.load(document))
        bound, memories = problem.total_bound, document["machine"]["memories"]
        own = [one.size for one in problem.memory_bounds if one is not None]
        if bound is None or bound.size <= max(own, default=0):
            continue
        for spare in (-1, 0):
            cuts = sorted(draw.randint(0, bound.size + spare) for _ in memories[1:])
            for memory, first, last in zip(memories, [0, *cuts], [*cuts, bound.size + spare], strict=True):
                memory["capacity"] = last - first
            best = offloading.least_makespan(document, None, recompute=True, states=2_000)
            if best is not None and math.isnan(best):
                continue
            if spare < 0:
                assert best is None
                assert make_problem(remat.load(document)).exceeded is not None
                refuted += 1
            met += spare == 0 and best is not None
    assert refuted >= 20
    assert met >= 1


def test_the_budget_of_devices_is_shared():
    document = generate("pipeline", "transformer", layers=4, hidden=64, heads=4, sequence=32, vocabulary=100, devices=4)
    problem = make_problem(remat.load(document))
    least = problem.least_of(0)
    assert least is not None
    assert least.size == -(-problem.total_bound.size // 4)
    found = remat.solve(document, budget=least.size - 1, algorithm="1f1b")
    assert (found.status, found.scope) == ("infeasible", "all schedules")
    assert found.total_bound == problem.total_bound
