"""Test stages on the host: valid schedules, never slower, and a valid lower bound."""

import random

import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat.verifier import check
from remat_algorithms.offload.swaps.dispatch import Dispatched, dispatch
from remat_algorithms.offload.weights import host_compute
from remat_algorithms.offload.weights.host_bound import crossing_bound
from remat_algorithms.offload.weights.parameters import Choice, Setting
from remat_algorithms.offload.weights.training_program import Training
from tests.algorithms.offload.trained import chain, drawn, stage
from tests.algorithms.offload.weights.test_zero_family import solve
from tests.seeds import seeds


def setting_of(document, budget=None):
    return Setting(make_problem(remat.load(document), budget=budget), "weight-offload")


def placed(setting, choices):
    training = Training(setting, choices)
    return training, dispatch(training.graph, setting.machine, training.program)


def test_the_host_computes_as_by_hand():
    """A stage of 8 bytes of parameters, F 1, B 1, at a host of half the speed; the link takes 2 bytes a time unit.

    The host runs F from 0 to 2, x1 (1 byte) comes until 2.5, and the loss takes 1; y1 goes until 4, the host runs B
    until 6 and the update until 8. On the device, w1 alone would come until 4, g1 go until 11, with the update at 13.
    """
    document = chain(stage(1, 1, 8, saved=0, update=1, optimizer=0), parameters="host", input_size=0, loss={"time": 1})
    setting = setting_of(document)
    _, at_host = placed(setting, [Choice(updater=1, helped=2)])
    _, on_device = placed(setting, [Choice(updater=1)])
    assert isinstance(at_host, Dispatched)
    assert isinstance(on_device, Dispatched)
    assert (at_host.makespan, on_device.makespan) == (8, 13)
    found = solve(document, "weight-offload")
    assert found.makespan == 8
    assert "cpu runs 1 first forwards and 1 backwards" in found.notes
    assert found.lower_bound == pytest.approx(7, rel=1e-3)  # all but the ways of x1 and y1


@pytest.mark.parametrize("seed", seeds(2, 60))
def test_valid_and_never_below_the_bound(seed):
    """Any changed choice that fits gives a valid schedule that is not below the bound."""
    document = drawn(seed, longest=4, parameters="host")
    free = solve(document, "l2l")
    for share in (1, 0.8, 0.6):
        setting = setting_of(document, budget=int(free.peak_memory["device"] * share))
        assert setting.may_be_helped
        chance = random.Random(f"helped {seed} {share}")
        choices = next(host_compute.prefixes(setting))[0]
        makespans = []
        for _ in range(30):
            choices = host_compute.changed(setting, choices, chance)
            training, outcome = placed(setting, choices)
            if isinstance(outcome, Dispatched):
                report = check(training.graph, setting.machine, outcome.steps)
                assert not report.violations
                assert report.makespan == outcome.makespan
                makespans.append(outcome.makespan)
        if makespans:
            bound = crossing_bound(setting, 2 * min(makespans), lambda: False)
            assert 0 < bound <= min(makespans)


@pytest.mark.slow
def test_helps_where_the_link_is_slow():
    """Six stages whose parameters take as long to come as a host of a quarter of the speed takes to compute."""
    document = chain(*[stage(2, 4, 16, update=2) for _ in range(6)], parameters="host", master_copy=True)
    document["machine"]["processors"][1]["speed"] = 0.25
    found = solve(document, "weight-offload", evaluations=20)
    without = min(solve(document, name).makespan for name in ("l2l", "zero-infinity"))
    assert found.makespan < 0.9 * without
    assert any(note.startswith("cpu runs ") for note in found.notes)


@pytest.mark.parametrize("parameters", ["device", "host"])
def test_nothing_for_other_instances(parameters):
    """Host compute is unavailable without a host processor or with parameters on the device."""
    document = drawn(1, longest=3, parameters=parameters)
    if parameters == "host":
        document["machine"]["processors"].pop()
    setting = setting_of(document)
    assert not setting.may_be_helped
    assert crossing_bound(setting, 1000, lambda: False) == 0


@pytest.mark.parametrize("seed", seeds(3, 120))
def test_no_schedule_of_equal_stages_is_below_the_bound(seed):
    """Several of which the device updates: their states come one after the other, and go back so."""
    chance = random.Random(f"alike {seed}")
    size = 2 * chance.randint(1, 4)
    one = stage(chance.randint(1, 3), chance.randint(1, 4), size, update=chance.randint(1, 4), optimizer=6 * size)
    others = [stage(1, 1, 2 * chance.randint(1, 6), update=chance.randint(0, 4)) for _ in range(chance.randint(0, 1))]
    stages = [*others, *[one] * chance.randint(2, 4)]
    document = chain(*stages, loss={"time": chance.randint(0, 2)}, parameters="host", master_copy=chance.random() < 0.5)
    document["machine"]["processors"][1]["speed"] = chance.choice((0.5, 0.25, 0.0625))
    for link in document["machine"]["links"]:
        link["bandwidth"] = chance.choice((2, 4, 8))
    free = solve(document, "l2l")
    budget = int(free.peak_memory["device"] * chance.choice((0.9, 1, 2)))
    try:
        found = solve(document, "weight-offload", budget=budget, evaluations=60)
    except remat.RematError:
        return
    if found.makespan is None:
        return
    bound = crossing_bound(setting_of(document, budget=budget), 2 * found.makespan, lambda: False)
    assert 0 < bound <= found.makespan
