"""Modulo schedules whose steps are shorter than the tolerance of their period: order, bytes and versions stay exact."""

import random

import pytest

import remat

NAMES = {"double": "pipedream-2bw", "stash": "pipedream", "single": "pipemare"}


def drawn(seed):
    """Return a pipeline in which a few layers take a billion times longer than others."""
    draw = random.Random(f"short steps {seed}")
    long = draw.choice([1e8, 1e9, 1e10, 1e12]) * draw.random()
    times = [0.0, 1.0, 1.0, draw.choice([1e3, 16420.475, 2e5]) * draw.random(), 5.7e-7, long]
    layers = [
        {
            "forward_time": draw.choice(times),
            "backward_time": draw.choice(times),
            "saved_size": draw.randint(0, 9),
            "output_size": draw.choice([0, 3]),
            "gradient_size": draw.choice([0, 2]),
            "parameter_size": draw.choice([0, 5]),
        }
        for _ in range(draw.randint(3, 6))
    ]
    cluster = {"devices": [{"name": "gpu", "count": draw.randint(1, 3)}]}
    if draw.random() < 0.5:
        cluster["levels"] = [{"latency": draw.choice(times[:4]), "delay": draw.choice(times[:4])}]
    weights = draw.choice(sorted(NAMES))
    more = {"update_every": draw.randint(2, 9)} if weights == "double" else {}
    head = {"schema": "remat.instance/3", "kind": "pipeline", "micro_batches": draw.randint(1, 6), "weights": weights}
    return {**head, **more, "layers": layers, "cluster": cluster}


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 1000), marks=pytest.mark.slow)])
def test_a_period_holds_what_its_repetitions_hold(seeds):
    for seed in seeds:
        document = drawn(seed)
        result = remat.solve(document, algorithm=NAMES[document["weights"]])
        steady = result.report.steady.peaks
        assert all(size <= steady[name] for name, size in result.report.peak_memory.items()), seed


@pytest.mark.parametrize("seed", range(12))
def test_one_byte_less_than_a_strategy_holds_is_refused_with_that_minimum(seed):
    document = drawn(seed)
    name = NAMES[document["weights"]]
    most = max(remat.solve(document, algorithm=name).report.steady.peaks.values())
    assert remat.solve(document, algorithm=name, budget=most).columns is not None
    refused = remat.solve(document, algorithm=name, budget=most - 1)
    assert refused.columns is None
    assert refused.least_budget.size == most
