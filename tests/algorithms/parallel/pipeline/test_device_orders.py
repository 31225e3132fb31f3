"""Devices that differ: searches try other orders than the listed one, and the list does not decide."""

import contextlib
import itertools
import random

import pytest

import remat
from tests.fuzz.forms import document
from tests.fuzz.transformations import permute_processors
from tests.oracles import referee


def pipeline(types, *, memory=None, layers=3, weights=None, **cluster):
    """Return a pipeline whose devices have these types; `slow` ones take four times as long."""
    count = itertools.count()
    devices = [
        {"name": f"gpu{next(count)}", "type": kind, **({} if memory is None else {"memory": memory})} for kind in types
    ]
    times = {"forward_time": {"fast": 1, "slow": 4}, "backward_time": {"fast": 2, "slow": 8}, "saved_size": 2}
    given = {"schema": "remat.instance/3", "kind": "pipeline", "layers": [times] * layers, "micro_batches": 4}
    return given | {"cluster": {"devices": devices, **cluster}} | ({} if weights is None else {"weights": weights})


def solved(given, name):
    """Solve with little work: which orders are tried does not depend on it."""
    options = {"pipe-plan": {"moves": 20, "zoo": False}, "pipe-search": {"moves": 100}}.get(name, {})
    result = remat.solve(given, algorithm=name, options=options)
    assert referee.check(given, result.to_dict()).ok
    return result


@pytest.mark.parametrize("name", [pytest.param("pipe-plan", marks=pytest.mark.slow), "pipe-search", "madpipe"])
def test_the_list_of_devices_does_not_decide(name):
    weights = "stash" if name == "madpipe" else None
    orders = set(itertools.permutations(("fast", "slow", "fast")))
    found = {solved(pipeline(order, layers=4, weights=weights), name).makespan for order in orders}
    assert len(found) == 1


def drawn(numbers):
    """Yield drawn pipelines of unlike devices that end, and the same with the devices in another order."""
    for number in numbers:
        given, _ = document(5_000 + number, "pipeline")
        types = {device.get("type", device["name"]) for device in given["cluster"]["devices"]}
        other = permute_processors(given, random.Random(number))
        if other is None or len(types) < 2 or given.get("weights", "flush") != "flush":
            continue
        with contextlib.suppress(remat.InstanceError):
            if not remat.load(given).cut:
                yield given, other


def are_as_fast(pairs, name, **options):
    count = 0
    for given, other in pairs:
        one, two = (remat.solve(document, algorithm=name, options=options) for document in (given, other))
        none = one.makespan is None and two.makespan is None
        assert none or one.makespan == pytest.approx(two.makespan, rel=1e-9), given
        count += 1
    return count


def test_drawn_pipelines_are_as_fast_in_any_order():
    assert are_as_fast(drawn(range(40)), "pipe-search", moves=20) >= 2


@pytest.mark.slow
def test_many_drawn_pipelines_are_as_fast_in_any_order():
    assert are_as_fast(drawn(range(40, 400)), "auto") >= 15


def test_another_order_is_told_and_executed_on_the_named_devices():
    given = pipeline(("slow", "fast"), layers=4)
    given["layers"] = [dict(layer) for layer in given["layers"]]
    for layer, saved in zip(given["layers"], (1, 1, 1, 40), strict=True):
        layer["saved_size"] = saved
    given["cluster"]["devices"][1]["memory"] = 60
    result = solved(given, "pipe-search")
    devices = [result.machine.processors[stage.device].name for stage in result.orders.stages]
    told = any("another order than listed" in note for note in result.notes)
    assert told == (devices != sorted(devices))


def test_named_schedules_take_the_devices_as_listed():
    one, two = (solved(pipeline(types), "1f1b") for types in (("slow", "fast"), ("fast", "slow")))
    assert [stage.device for stage in one.orders.stages] == [stage.device for stage in two.orders.stages] == [0, 1]
    assert one.makespan != two.makespan


def test_a_row_that_cannot_run_the_layers_is_no_refusal():
    given = pipeline(("fast", "slow"), layers=2)
    given["layers"] = [
        {"forward_time": {"slow": 4}, "backward_time": {"slow": 8}},
        {"forward_time": {"fast": 1}, "backward_time": {"fast": 2}},
    ]
    for name in ("pipe-plan", "pipe-search"):
        result = solved(given, name)
        assert [result.machine.processors[stage.device].name for stage in result.orders.stages] == ["gpu1", "gpu0"]
