"""Whole times of any length stay whole: instants are never added up."""

import random

import pytest

import remat
from remat.plugin import instant_array, number_array
from tests.seeds import few

NAMES = ("offload-greedy", "offload-dp", "pofo", "capuchin", "superneurons", "autoswap")


def drawn(number):
    """Draw a chain with times up to 2^60, whose schedules end before 2^62, and a host."""
    chance = random.Random(number)

    def time():
        return chance.choice([chance.randint(0, 9), 2**56 + chance.randint(0, 9), 2**59 + chance.randint(0, 9)])

    stages = [
        {"forward_time": time(), "backward_time": chance.randint(0, 9), "output_size": chance.randint(1, 9)}
        for _ in range(3)
    ]
    links = [
        {"source": source, "target": target, "latency": chance.choice([0, 1, 2**55 + 1]), "bandwidth": 1}
        for source, target in (("device", "host"), ("host", "device"))
    ]
    return {
        "schema": "remat.instance/1",
        "kind": "chain",
        "input_size": 2,
        "stages": stages,
        "machine": {
            "memories": [{"name": "device"}, {"name": "host"}],
            "processors": [{"name": "gpu", "memory": "device"}],
            "links": links,
        },
    }


@pytest.mark.parametrize("count", few(4, 12))
@pytest.mark.parametrize("algorithm", NAMES)
def test_makespans_of_whole_times_are_whole(algorithm, count):
    found = 0
    for number in range(count):
        result = remat.solve(drawn(number), algorithm=algorithm, budget="85%")
        if result.makespan is not None:
            found += 1
            assert type(result.makespan) is int
            assert all(type(bound.value) is int for bound in result.bounds if bound.scope == "all schedules")
    assert found


def test_instants_may_be_larger_together_than_one_of_them():
    late = [2**61] * 3
    assert instant_array(late).tolist() == late
    assert (
        number_array(late).dtype.kind == instant_array([2**62]).dtype.kind == instant_array([1, 0.5]).dtype.kind == "f"
    )
