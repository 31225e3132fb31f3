"""Test the steady state of training steps in both judges: periods, staleness and memory."""

import math
import random

import pytest

import remat
from tests.algorithms.offload.trained import chain, drawn, machine, stage
from tests.oracles import cycles, referee
from tests.seeds import seeds

SYMBOLS = {"zero-offload": "device", "l2l": "host", "zero-infinity": "host"}


def solve(document, algorithm, budget=None, **options):
    """Solve, and put the answer before both judges, as a step of training and as many of them."""
    result = remat.solve(document, algorithm=algorithm, budget=budget, options=options)
    if result.columns is not None:
        written = result.to_dict()
        assert referee.check(document, written).ok
        broken, peaks = cycles.steady(document, written)
        assert not broken
        assert peaks == dict(result.report.steady.peaks)
        assert remat.verify(document, written).steady == result.report.steady
    return result


def loads(result):
    return max(result.report.steady.busy.values())


@pytest.mark.parametrize("seed", seeds(4, 60))
@pytest.mark.parametrize("algorithm", ["zero-offload", "l2l", "zero-infinity"])
def test_both_judges_agree(seed, algorithm):
    chance = random.Random(f"cycle {seed}")
    document = drawn(seed, longest=4, parameters=SYMBOLS[algorithm]) | {"staleness": 0, "schema": "remat.instance/3"}
    result = solve(document, algorithm)
    if document["master_copy"] and all(given["optimizer_size"] for given in document["stages"]):
        document["staleness"] = chance.randint(1, 2)
        stale = solve(document, algorithm)
        assert stale.report.steady.period <= result.report.steady.period
    # Other periods: what one judge refuses, the other does, too.
    written = result.to_dict()
    document["staleness"] = 0
    for _ in range(3):
        other = written | {"period": max(1, written["period"] - chance.randint(0, 6))}
        report = remat.verify(document, other)
        broken, peaks = cycles.steady(document, other)
        assert {violation.rule for violation in report.violations} == broken
        if report.ok:
            assert peaks == dict(report.steady.peaks)


def test_the_delayed_update_hides_the_hosts_side():
    """Four stages of F 2, B 4: 24 on the device; updates of 3 at half speed: 24 at the host, 8 on the links."""
    layers = [stage(update=3) for _ in range(4)]
    document = chain(*layers, master_copy=True, staleness=1, schema="remat.instance/3")
    steady = solve(document, "zero-offload").report.steady
    assert (steady.period, steady.staleness) == (24, (1,))
    # Without a delay the first forward waits for the last update, and its parameters.
    alone = solve(document | {"staleness": 0}, "zero-offload")
    assert (alone.makespan, alone.report.steady.period, alone.report.steady.staleness) == (
        *[alone.report.makespan] * 2,
        (0,),
    )
    assert alone.makespan == 24 + 2 + 6 + 2 + (8 + 2 + 6 - 16) + max(0, 4 * 6 - 3 * 4 - 6)


@pytest.mark.parametrize("seed", seeds(20, 80))
def test_the_period_is_the_larger_of_the_two_sides(seed):
    """With a delay of one step, the period is the larger side's time if links are no bottleneck.

    Short chains are an exception: forward, gradient, update and new parameters have to fit into two periods.
    """
    document = drawn(seed, longest=8) | {"staleness": 1, "schema": "remat.instance/3", "master_copy": True}
    for given in document["stages"]:
        given["optimizer_size"] = 6
        given["parameter_gradient_size"] = given["parameter_size"] = 2
    document["machine"] = machine(down=2, up=2, speed=document["machine"]["processors"][1]["speed"])
    result = solve(document, "zero-offload")
    device = sum(given["forward_time"] + given["backward_time"] for given in document["stages"])
    device += document["loss"]["time"]
    host = sum(given["update_time"] for given in document["stages"]) / document["machine"]["processors"][1]["speed"]
    larger, around = max(device, host), device + 1 + host + 1
    assert larger <= result.report.steady.period <= max(larger, math.ceil(around / 2))
    assert len(document["stages"]) < 3 or result.report.steady.period == larger
    assert result.report.steady.staleness == (1,)


@pytest.mark.parametrize("seed", seeds(6, 20))
def test_within_a_budget(seed):
    """The memory of one step suffices for longer periods; the minimum period needs more."""
    document = drawn(seed, longest=5) | {"staleness": 1, "schema": "remat.instance/3", "master_copy": True}
    for given in document["stages"]:
        given["optimizer_size"] = 6
    free = solve(document, "zero-offload")
    peaks = dict(free.report.steady.peaks)
    again = solve(document, "zero-offload", budget=peaks)
    assert again.report.steady.period == free.report.steady.period
    less = solve(document, "zero-offload", budget={"device": peaks["device"] - 1})
    assert less.columns is None or less.report.steady.period >= free.report.steady.period


@pytest.mark.parametrize(
    ("change", "path", "why"),
    [
        ({"period": 0}, "$.period", "longer than 0"),
        ({"period": "soon"}, "$.period", "is not a time"),
        ({"period": None}, "$", "expected a period"),
    ],
)
def test_what_is_no_period(change, path, why):
    document = chain(stage(), staleness=0, schema="remat.instance/3")
    written = {
        key: value for key, value in (solve(document, "zero-offload").to_dict() | change).items() if value is not None
    }
    with pytest.raises(remat.InstanceError, match=why) as caught:
        remat.verify(document, written)
    assert caught.value.path == path
    with pytest.raises(remat.InstanceError, match="chains with a staleness have a period") as caught:
        remat.verify({key: value for key, value in document.items() if key != "staleness"}, written | {"period": 3})
    assert caught.value.path == "$.period"


def test_other_algorithms_know_no_steps_without_end():
    document = chain(stage(), staleness=0, schema="remat.instance/3")
    for algorithm in ("weight-offload", "keep-all", "dag-auto"):
        with pytest.raises(remat.OptionError, match=r"follow each other without end|offload"):
            remat.solve(document, algorithm=algorithm)
