"""Plans for too little memory: what is proved, what the need consists of, and budgets that work."""

import random

import pytest

import remat
from remat.report.text.plan_view import plan_lines
from remat.solving.problem_setup import make_problem

QUICK = {"moves": 20, "zoo": False}
STAGE = {"forward_time": 2, "backward_time": 4, "output_size": 1, "saved_size": 4, "parameter_size": 30}
CHAIN = {
    "schema": "remat.instance/2",
    "kind": "chain",
    "units": {"time": "unit", "memory": "unit"},
    "input_size": 1,
    "static_memory": 50,
    "stages": [STAGE | {"optimizer_size": 60, "repeat": 4}],
    "loss": {"time": 1},
}


def drawn(seed, devices):
    draw = random.Random(seed)
    return remat.pipeline(
        forward_time=[draw.randint(1, 4) for _ in range(2 * devices)],
        backward_time=2,
        output_size=draw.randint(1, 9),
        saved_size=draw.choice([2, 10]),
        parameter_size=draw.choice([20, 60]),
        optimizer_size=draw.choice([0, 30, 90]),
        backward_workspace=draw.choice([0, 7]),
        devices=devices,
        micro_batches=2,
        memory=1,
        time_unit="unit",
        size_unit="unit",
    )


def permanent(instance):
    return sum(layer.repeat * sum(layer.of_parameters) for layer in instance.layers)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_parameters_gradients_and_states_alone_prove_that_nothing_fits(seed, devices):
    instance = remat.load(drawn(seed, devices))
    size = permanent(instance)
    planned = remat.plan(instance, budget=(size - 1) // devices, options=QUICK)
    assert planned.result.status == "infeasible"
    found = planned.result.shortfall
    assert found.proved
    assert found.need >= size
    assert sum(found.split.values()) == size
    told = {part.what: part.size for part in found.parts}
    assert told.get("optimizer states", 0) + told["gradients"] + told["parameters"] + told["read"] >= size
    fits = remat.plan(instance, budget=found.budget[""], options=QUICK)
    assert found.need <= sum(fits.result.peak_memory.values())


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_of_one_device_is_at_most_the_peak_of_any_schedule(seed):
    problem = make_problem(remat.load(drawn(seed, 1)))
    (bound,) = problem.memory_bounds
    peak = remat.solve(problem.instance, algorithm="1f1b", budget=10**6).peak_memory
    assert permanent(problem.instance) <= bound.size <= max(peak.values())


@pytest.mark.parametrize(
    ("budget", "devices"), [(40, 1), (40, 2), (0, 2), (300, 1), (180, 2), ({"gpu0": 40, "gpu1": 60}, 2)]
)
def test_a_reserve_is_a_part_of_the_need(budget, devices):
    """A budget below the reserve is no error of use: it is infeasible, with the figures."""
    given = {"devices": devices, "micro_batches": 2, "link": 1, "options": QUICK}
    result = remat.plan(CHAIN, budget=budget, **given).result
    assert result.status == "infeasible"
    found = result.shortfall
    asked = budget if isinstance(budget, int) else budget["gpu0"]
    assert result.machine.memories[0].capacity == asked
    static = {part.what: part.size for part in found.parts}["static memory"]
    assert static == 50 * (1 if found.memory else devices)
    fits = remat.plan(CHAIN, budget=found.budget[""], **given).result
    assert fits.report is not None
    assert found.need <= sum(fits.peak_memory.values()) + static


def test_more_devices_do_not_help_a_task_that_is_too_large_alone():
    step = remat.pipeline(
        forward_time=[1, 1],
        backward_time=2,
        output_size=1,
        saved_size=90,
        parameter_size=30,
        devices=2,
        micro_batches=2,
        time_unit="unit",
        size_unit="unit",
    )
    small = remat.plan(step, budget=70, options=QUICK)
    text = dict(plan_lines(small))
    assert "more devices: a task alone takes" in text["does not help"]
    large = remat.plan(step, budget=140, options=QUICK).result
    remedy = next((one for one in large.shortfall.remedies if "devices" in one.what), None)
    assert remedy is None or remedy.need >= 90


def test_devices_of_a_remedy_are_those_of_a_rank():
    instance = drawn(1, 2)
    planned = remat.plan(instance, budget=100, data=[2], options=QUICK)
    assert planned.result.report is None
    named = [remedy.what for remedy in planned.result.shortfall.remedies]
    assert any("devices of each rank" in what or what == "more devices" for what in named)


def test_the_degrees_that_were_tried_are_named_without_a_schedule():
    text = dict(plan_lines(remat.plan(drawn(1, 2), budget=9, data=[1, 2], options=QUICK)))
    assert text["degrees"].startswith("figures of data ")
    assert text["degrees"].count("no schedule") == 2
