"""Plans that need little memory: cuts by bytes against all cuts, and orders that fit at their own peak."""

import random
from itertools import combinations, pairwise

import pytest

import remat
from remat_algorithms.joint.pipe_plan.smallest_memory import cut_by_bytes


def drawn(seed, layers, devices):
    draw = random.Random(seed)
    return remat.pipeline(
        forward_time=1,
        backward_time=2,
        output_size=[draw.randint(1, 9) for _ in range(layers)],
        saved_size=[draw.randint(1, 40) for _ in range(layers)],
        parameter_size=[draw.choice((1, 100)) for _ in range(layers)],
        devices=devices,
        micro_batches=2,
        link=100,
        time_unit="unit",
        size_unit="unit",
    )


def need(layers, first, end):
    """Return what a stage needs: parameters and gradients, its outputs, and its largest layer."""
    own = layers[first:end]
    static = sum(sum(layer.of_parameters) + layer.output_size for layer in own)
    return static + max(layer.saved_size + layer.output_size + layer.gradient_bytes for layer in own)


@pytest.mark.parametrize("seed", range(8))
def test_the_largest_need_of_a_stage_is_the_smallest_of_all_cuts(seed):
    instance = drawn(seed, 9, 3)
    layers = instance.each_layer()
    cuts = [(0, *ends, 9) for ends in combinations(range(1, 9), 2)]
    best = min(max(need(layers, first, end) for first, end in pairwise(cut)) for cut in cuts)
    stages = cut_by_bytes(instance)
    assert [layer for stage in stages for layer in stage.layers] == list(range(9))
    assert [stage.device for stage in stages] == [0, 1, 2]
    assert max(need(layers, stage.layers[0], stage.layers[-1] + 1) for stage in stages) == best


def test_there_is_no_cut_of_fewer_layers_than_devices():
    assert cut_by_bytes(drawn(0, 2, 3)) is None


@pytest.mark.parametrize("seed", range(3))
def test_the_named_budget_suffices_and_so_does_more(seed):
    instance, options = drawn(seed, 12, 4), {"moves": 0, "zoo": False}
    bound = remat.solve(instance, algorithm="pipe-plan", budget=150, options=options).least_budget
    assert bound is not None
    least = remat.solve(instance, algorithm="pipe-plan", budget=bound.size, options=options).least_budget
    assert least is not None
    assert least.sufficient
    for budget in (least.size, least.size + 1, least.size * 11 // 10):
        assert remat.solve(instance, algorithm="pipe-plan", budget=budget, options=options).report is not None
