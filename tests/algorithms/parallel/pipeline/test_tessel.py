"""Test `tessel`: its repetends against exhaustive enumeration, and the schedules built from them."""

import itertools
import random
from math import gcd

import pytest

import remat
from remat_algorithms.parallel.pipeline.model import B, F, PipelineModel, complete, evaluate
from remat_algorithms.parallel.pipeline.tessel import least_repetend, repeated
from tests.algorithms.parallel.pipeline.models import certified


def draw(number):
    chance = random.Random(number)
    forward, backward = ([chance.randint(1, 3) for _ in range(2)] for _ in range(2))
    held = [chance.randint(1, 3) for _ in range(2)]
    capacity = [chance.randint(size, 3 * size) for size in held]
    return PipelineModel(
        (0, 1),
        6,
        tuple(forward),
        tuple(backward),
        (0, 0),
        (chance.randint(0, 1),),
        tuple(held),
        (0, 0),
        (0, 0),
        tuple(capacity),
    )


def least_period(model):
    """Return the least period of two stages on two devices, by trying all offsets and shifts."""
    took = {(k, s): model.times[k][s] for k in (F, B) for s in (0, 1)}
    hop = model.hop[0]
    for period in itertools.count(max(f + b for f, b in zip(model.forward, model.backward, strict=True))):
        for times in itertools.product(range(3 * period), repeat=3):
            start = {(F, 0): 0, (F, 1): times[0], (B, 1): times[1], (B, 0): times[2]}
            if (
                start[F, 1] >= took[F, 0] + hop
                and start[B, 1] >= start[F, 1] + took[F, 1]
                and start[B, 0] >= start[B, 1] + took[B, 1] + hop
                and all(_apart(start[F, s], took[F, s], start[B, s], took[B, s], period) for s in (0, 1))
                and all(
                    _held(start[F, s], start[B, s] + took[B, s], period) * model.activation[s] <= model.capacity[s]
                    for s in (0, 1)
                )
            ):
                return period
    raise AssertionError


def _apart(first, takes, second, took, period):
    busy = [(first + k) % period for k in range(takes)] + [(second + k) % period for k in range(took)]
    return len(set(busy)) == len(busy)


def _held(begin, end, period):
    return max(
        sum(begin + m * period <= x < end + m * period for m in range(-9, 9)) for x in range(begin, begin + period)
    )


@pytest.mark.parametrize("numbers", [range(4), pytest.param(range(4, 60), marks=pytest.mark.slow)])
def test_no_repetend_of_one_micro_batch_is_shorter(numbers):
    for number in numbers:
        model = draw(number)
        period, _ = least_repetend(model, 1, work=5.0)
        step = gcd(*model.forward, *model.backward, *model.weight, *model.hop)  # the period counts such steps
        assert period * step == least_period(model), number


@pytest.mark.parametrize("count", [1, 2])
def test_lists_are_complete_and_fit(count):
    for number in range(4):
        model = draw(number)
        lists = repeated(model, count, work=5.0)
        assert complete(model, lists) == lists
        assert all(peak <= limit for peak, limit in zip(evaluate(model, lists).peaks, model.capacity, strict=True))


def test_a_chain_with_room_for_it_is_1f1b():
    model, _, _ = certified({"place": [0, 1, 2, 3], "m": 8, "F": 1, "B": 2, "cap": 4, "best": 33})
    assert evaluate(model, repeated(model, 1, work=5.0)).makespan == 33


def test_tessel_solves_instances_of_equal_layers():
    layer = {"forward_time": 1, "backward_time": 2, "saved_size": 1, "repeat": 4}
    given = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "layers": [layer],
        "micro_batches": 8,
        "cluster": {"devices": [{"name": "gpu", "count": 4}]},
    }
    assert remat.solve(given, algorithm="tessel", budget=4).makespan == 33
    assert remat.solve(given, algorithm="tessel", budget=0).makespan is None
