"""No algorithm's bound, or proof, is against plans whose stages several devices run together."""

import random

import pytest

import remat
from remat.errors import OptionError
from tests.schedule.test_tensor import drawn
from tests.seeds import seeds

FEW = {"moves": 20, "zoo": False}
OPTIONS = {"pipe-plan": FEW, "pipe-search": {"moves": 50}, "pipe-exact": {"work": 0.1}}
NAMES = ("gpipe", "1f1b", "zb-h1", "pipedream-dp", "dapple-plan", "adapipe", "pipe-search", "pipe-exact", "pipe-plan")


def quick(chance):
    """Return a drawn instance in which groups take little time and few bytes."""
    document = drawn(chance)
    document["cluster"]["devices"][0]["count"] = 6
    document["cluster"]["levels"] = document["cluster"]["levels"][-1:]
    document["micro_batches"] = chance.randint(1, 3)
    for layer in document["layers"]:
        for work in layer["tensor"].values():
            small = {key: chance.randint(0, 4) for key in work if key.endswith("_size")}
            work |= {"forward_time": 1, "backward_time": chance.randint(1, 3), "update_time": 0} | small
    return document


@pytest.mark.parametrize("number", seeds(2, 60))
def test_bounds_and_proofs(number):
    document = quick(random.Random(number))
    result = remat.plan(document, tensor=[2, 3], options=FEW).result
    assert result.makespan is not None
    answered = 0
    for budget in (None, max(result.peak_memory.values())):
        for name in NAMES:
            try:
                other = remat.solve(document, algorithm=name, budget=budget, options=OPTIONS.get(name, {}))
            except OptionError:  # too few layers, no halves
                continue
            answered += 1
            assert other.lower_bound <= result.makespan
            assert other.status != "infeasible"
            assert other.status != "optimal" or other.makespan <= result.makespan
    assert answered
