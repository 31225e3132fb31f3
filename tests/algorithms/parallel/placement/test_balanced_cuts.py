"""Minimum cuts between a device and its host: good first placements, and a bound over all schedules."""

import math
import random

import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.parallel.placement.balanced_cuts import balanced_cuts, load_bound
from remat_algorithms.parallel.placement.single_run import once_of
from tests.oracles import parallel


def machine(speed, bandwidth):
    return {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}, {"name": "cpu", "memory": "host", "speed": speed}],
        "links": [
            {"source": "device", "target": "host", "bandwidth": bandwidth, "channel": "out"},
            {"source": "host", "target": "device", "bandwidth": bandwidth, "channel": "in"},
        ],
    }


def layers(count, *, work, weight, state, speed=0.1, bandwidth=10):
    """Return forwards, backwards and updates of layers with weights and states at the host."""
    tasks, values, inputs, outputs = [], [], [], []

    def value(name, size, *, at_host=False):
        values.append({"id": name, "size": size})
        if at_host:
            inputs.append({"value": name, "memory": "host"})
        return name

    before = []
    for layer in range(count):
        w = value(f"w{layer}", weight, at_host=True)
        tasks.append({"id": f"f{layer}", "time": work, "reads": [*before, w], "writes": [value(f"x{layer}", 1)]})
        before = [f"x{layer}"]
    for layer in reversed(range(count)):
        w, state_name = f"w{layer}", value(f"s{layer}", state, at_host=True)
        gradient, below = value(f"g{layer}", weight), value(f"d{layer}", 1)
        reads = [*before, w, f"x{layer}"]
        tasks.append(
            {"id": f"b{layer}", "time": 2 * work, "reads": [*dict.fromkeys(reads)], "writes": [gradient, below]}
        )
        news = [value(f"nw{layer}", weight), value(f"ns{layer}", state)]
        tasks.append({"id": f"u{layer}", "time": 1, "reads": [w, state_name, gradient], "writes": news})
        outputs += [{"value": name, "memory": "host"} for name in news]
        before = [below]
    return {
        "schema": "remat.instance/2",
        "kind": "dag",
        "tasks": tasks,
        "values": values,
        "inputs": inputs,
        "outputs": outputs,
        "machine": machine(speed, bandwidth),
    }


def test_states_stay_at_the_host():
    """States are large and updates quick: a good placement updates at the host and computes on the device."""
    document = layers(6, work=40, weight=100, state=2_000)
    once = once_of(make_problem(remat.load(document)), "tarnawski-latency")
    timed = [(once.timed(placed).makespan, placed) for placed in balanced_cuts(once)]
    best, placed = min(timed)
    alone = [once.timed([processor] * once.model.units).makespan for processor in (0, 1)]
    assert best < min(alone) / 2
    homes = {once.model.graph.tasks[task]: placed[unit] for task, unit in once.model.unit_of.items()}
    assert all(homes[f"u{layer}"] == 1 for layer in range(6))
    assert all(homes[f"b{layer}"] == 0 for layer in range(6))


@pytest.mark.slow
def test_auto_is_no_worse_than_a_balanced_cut():
    document = layers(6, work=40, weight=100, state=2_000)
    once = once_of(make_problem(remat.load(document)), "tarnawski-latency")
    result = remat.solve(document, time_limit=3)
    assert load_bound(once) <= result.makespan <= min(once.timed(placed).makespan for placed in balanced_cuts(once))
    assert result.lower_bound >= load_bound(once) > 0


def test_no_cut_needs_a_copy_without_a_link():
    """The value is needed in both memories, between which there is no link."""
    document = {
        "schema": "remat.instance/3",
        "kind": "dag",
        "machine": machine(1, 1) | {"links": []},
        "tasks": [{"id": "make", "time": 1, "size": 1}, {"id": "use", "time": 2, "reads": ["make"], "size": 1}],
        "outputs": [{"value": "make", "memory": "device"}, {"value": "use", "memory": "host"}, "make"],
    }
    once = once_of(make_problem(remat.load(document)), "tarnawski-latency")
    assert list(balanced_cuts(once)) == []
    assert remat.solve(document, algorithm="tarnawski-latency").makespan is None


def test_below_every_schedule():
    """Exhaustive search over parallel schedules of tiny graphs."""
    compared = 0
    for seed in range(40):
        draw = random.Random(seed)
        tasks, values, inputs = [], [], []
        for number in range(3):
            name = f"p{number}"
            values.append({"id": name, "size": draw.randint(1, 6)})
            inputs.append({"value": name, "memory": draw.choice(["device", "host", "host"])})
            values.append({"id": f"v{number}", "size": draw.randint(0, 3)})
            reads = [name, *([f"v{draw.randrange(number)}"] if number and draw.random() < 0.5 else [])]
            tasks.append({"id": f"t{number}", "time": draw.randint(1, 6), "reads": reads, "writes": [f"v{number}"]})
        document = {"schema": "remat.instance/2", "kind": "dag", "tasks": tasks, "values": values, "inputs": inputs}
        document["machine"] = machine(draw.choice([0.5, 0.25]), draw.choice([1, 2]))
        bound = load_bound(once_of(make_problem(remat.load(document)), "tarnawski-latency"))
        best = parallel.least_makespan(document, states=2_000)
        if math.isfinite(best):
            assert bound <= best * (1 + 1e-9)
            compared += bound > 0
    assert compared >= 20
