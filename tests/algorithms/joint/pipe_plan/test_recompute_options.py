"""Test recompute options of stages: against all segments, and memoised for equal layers."""

import itertools
import random

import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.pipe_plan.recompute_options import StageCosts, _StageBytes
from tests.seeds import seeds


def costs_of(layers, reads):
    """Return the costs of stages of some layers, and the instance."""
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": 2,
        "backward_reads": reads,
        "layers": layers,
        "cluster": {"devices": [{"name": "gpu"}]},
    }
    instance = make_problem(remat.load(document)).instance
    return StageCosts(instance, instance.each_layer(), instance.device_types, "any"), instance


def every_segments(count):
    """Yield all segmentations: each layer is kept, begins a segment, or continues one."""
    for marks in itertools.product("kbg", repeat=count):
        found = []
        for number, mark in enumerate(marks):
            if mark == "b":
                found.append([number])
            elif mark == "g":
                if not number or marks[number - 1] == "k":
                    break
                found[-1].append(number)
        else:
            yield tuple(map(tuple, found))


def points(ways, layers, instance):
    """Return for each option the bytes of one micro-batch and the recomputation time."""
    work = _StageBytes(instance, list(instance.each_layer()), 0, 0)
    found = []
    for way in ways:
        held, forward, backward, _ = work.of(way)
        again = sum(layers[number]["forward_time"] for segment in way for number in segment)
        found.append((max(forward, held + backward), again))
    return found


@pytest.mark.parametrize("seed", seeds(15, 300))
def test_the_curve_of_a_stage_alone(seed):
    """For each memory that fits one micro-batch, rotor's fronts give the minimum recomputation time."""
    rng = random.Random(seed)
    layers = [
        {
            "forward_time": rng.randint(1, 9),
            "backward_time": 3,
            "saved_size": rng.randint(1, 9),
            "output_size": rng.randint(0, 4),
        }
        for _ in range(rng.randint(2, 5))
    ]
    layers[-1]["output_size"] = 0  # a chain's loss reads what a pipeline has sent on
    costs, instance = costs_of(layers, ["input", "saved"])
    every = points(every_segments(len(layers)), layers, instance)
    read = points([(), *costs._of_rotor(tuple(range(len(layers))), "gpu")], layers, instance)
    for room in {need for need, _ in every}:
        best = min(again for need, again in every if need <= room)
        assert min(again for need, again in read if need <= room) == best


def test_equal_layers_are_asked_once():
    layer = {"forward_time": 2, "backward_time": 4, "saved_size": 3, "output_size": 1, "repeat": 12}
    costs, _ = costs_of([layer], ["input", "saved"])
    levels = costs.levels(tuple(range(1, 7)), 0)
    assert costs.levels(tuple(range(3, 9)), 0) is levels
    assert len(costs.known) == 1
    assert len(levels) > 6
    assert all(one.held > other.held for one, other in itertools.pairwise(levels))


def test_fronts_of_uneven_layers_contain_uneven_segments():
    """On twelve uneven layers, fronts contain options that even segments miss."""
    rng = random.Random(3)
    layers = [
        {"forward_time": rng.randint(1, 9), "backward_time": 9, "saved_size": rng.randint(1, 40), "output_size": 9}
        for _ in range(12)
    ]
    costs, _ = costs_of(layers, ["input", "saved"])
    plain, _ = costs_of(layers, ["input", "saved"])
    plain._of_rotor = lambda own, name: iter(())
    found, even = (one.levels(tuple(range(12)), 0) for one in (costs, plain))
    assert any(
        level.held < other.held
        and level.recompute_time < 0.95 * other.recompute_time
        and level.backward <= other.backward
        for level in found
        for other in even
        if other.segments
    )
