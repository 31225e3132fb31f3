"""Compare the minimum makespan of graphs that run once on several devices with brute force."""

import random

import pytest

import remat
from remat.plugin.proposal import ALL_SCHEDULES
from remat_algorithms.parallel.placement.tarnawski_latency import ONCE_STRAIGHT
from tests.algorithms.parallel.placement.streams import star
from tests.oracles import referee
from tests.oracles.latencies import least

OPTIONS = {"moves": 60, "work": 1.0}


def once(chance):
    """Return a graph that runs once: with inputs that lie somewhere, and outputs that are wanted somewhere."""
    document = star(chance, tasks=4, devices=2, host=chance.random() < 0.5, kept=chance.choice([1.0, 0.4]))
    del document["stream"]
    memories = [memory["name"] for memory in document["machine"]["memories"]]
    if chance.random() < 0.5:
        document["values"].append({"id": "x", "size": chance.randint(0, 3)})
        document["inputs"].append({"value": "x", "memory": chance.choice(memories)})
        document["tasks"][0]["reads"].append("x")
    if chance.random() < 0.5:
        value = document["tasks"][-1]["writes"][0]
        document["outputs"] = [{"value": value, "memory": chance.choice(memories)}]
    for link in document["machine"]["links"]:
        if chance.random() < 0.3:
            link["delay"] = chance.randint(1, 3)
    return document


def put_to_the_test(seed):
    document = once(random.Random(seed))
    best = least(document)
    result = remat.solve(document, algorithm="tarnawski-latency", options=OPTIONS)
    assert (result.makespan is None) == (best is None)
    if best is None:
        return False
    verdict = referee.check(document, result.to_dict())
    assert verdict.ok, verdict.violations
    assert result.makespan == best
    assert result.optimal_within in (ONCE_STRAIGHT, ALL_SCHEDULES)
    return True


@pytest.mark.parametrize("seed", range(10))
def test_no_schedule_of_the_class_is_faster(seed):
    put_to_the_test(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_nothing_is_quicker_often(first):
    assert sum(put_to_the_test(1_000 + seed) for seed in range(first, first + 20)) > 10
