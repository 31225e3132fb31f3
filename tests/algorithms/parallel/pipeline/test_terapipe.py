"""Test TeraPipe: its cut of sequences against every cut, and its schedules in both judges."""

import itertools
import random

import pytest

import remat
from remat.instance import load
from remat_algorithms.parallel.pipeline.terapipe import best_cuts
from tests.oracles import referee


def document(times, length, *, devices, sequences=1, back=2, **more):
    """Return equal layers, one a device; `times` has the forward of each slice by (tokens, before)."""

    def layer(time, size):
        return {"forward_time": time, "backward_time": back * time, "saved_size": size}

    rows = [
        {"tokens": n, "before": k, "layers": [layer(time, n) | {"cache_gradient_size": n}]}
        for (n, k), time in times.items()
    ]
    whole = layer(times.get((length, 0), 10 * length), length) | {"repeat": devices}
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": sequences,
        "layers": [whole],
        "cluster": {"devices": [{"name": "d", "count": devices}]},
        "tokens": {"length": length, "slices": rows},
    } | more


def drawn(chance, length):
    """Return times of all slices, or of all but some."""
    spans = [(end - first, first) for first in range(length) for end in range(first + 1, length + 1)]
    return {span: chance.randint(1, 20) for span in spans if span[0] == 1 or chance.random() < 0.8}


def cuts_of(times, length, before=0):
    """Yield every cut of the rest of a sequence into available slices."""
    if before == length:
        yield ()
    for n in range(1, length - before + 1):
        if (n, before) in times:
            for rest in cuts_of(times, length, before + n):
                yield (n, *rest)


def formula(times, cut, sequences, devices):
    """Return the sum of all forwards, and the longest again for each device but one."""
    starts = itertools.accumulate(cut, initial=0)
    taken = [times[n, before] for n, before in zip(cut, starts, strict=False)]
    return sequences * sum(taken) + (devices - 1) * max(taken)


@pytest.mark.parametrize("number", range(30))
def test_best_cut_of_all(number):
    """On equal stages without hops the formula is the makespan, and no cut has a shorter one."""
    chance = random.Random(number)
    length, devices, sequences = chance.randint(1, 7), chance.randint(1, 4), chance.randint(1, 3)
    times = drawn(chance, length)
    best = min(formula(times, cut, sequences, devices) for cut in cuts_of(times, length))
    given = document(times, length, devices=devices, sequences=sequences)
    result = remat.solve(given, algorithm="terapipe")
    assert result.makespan == 3 * best
    assert result.lower_bound <= result.makespan
    verdict = referee.check(load_cut(given, result), result.to_dict())
    assert verdict.ok
    assert verdict.makespan == result.makespan
    report = remat.verify(given, result.to_dict())
    assert report.ok
    assert report.makespan == result.makespan


def load_cut(given, result):
    """Return the document with the cut of a result, as the reference judge reads it."""
    cut = result.to_dict()["cut"]
    return given | {"tokens": given["tokens"] | {"cut": cut}, "micro_batches": given["micro_batches"] * len(cut)}


@pytest.mark.parametrize("number", range(20))
def test_sums_under_limits(number):
    """Every cut that is yielded has the least sum of all whose longest slice is no longer."""
    chance = random.Random(number)
    length = chance.randint(2, 7)
    times = drawn(chance, length)
    spans = [(before, before + n) for n, before in times]
    found = list(best_cuts(length, spans, [float(time) for time in times.values()], sequences=2, stages=3))
    every = {cut: formula(times, cut, 1, 1) for cut in cuts_of(times, length)}
    longest = {cut: formula(times, cut, 0, 2) for cut in every}
    assert found
    for cut in found:
        assert every[cut] == min(every[other] for other in every if longest[other] <= longest[cut])
    assert formula(times, found[0], 2, 3) == min(formula(times, cut, 2, 3) for cut in every)
    assert list(found) == sorted(found, key=lambda cut: formula(times, cut, 2, 3))


def test_slices_by_hand():
    """Two devices, a sequence of two tokens: F F, then B B in reverse; slices wait for keys and values."""
    times = {(1, 0): 1, (1, 1): 2, (2, 0): 3}
    given = document(times, 2, devices=2)
    result = remat.solve(given, algorithm="terapipe", options={"cuts": 1})
    starts = {step.task: step.start for step in result.steps if hasattr(step, "task")}
    assert starts == {
        "Fe1.0": 0,
        "Fe1.1": 1,
        "Fe2.0": 1,
        "Fe2.1": 3,
        "B2.1": 5,
        "B2.0": 9,
        "B1.1": 9,
        "B1.0": 13,
    }
    assert result.makespan == 15
    assert result.to_dict()["cut"] == [1, 1]
    # What is saved of both slices, and the gradients of the first one's keys and values.
    assert result.peak_memory == {"d0": 3, "d1": 3}


def test_whole_sequences_are_better_where_slices_cost_more():
    given = document({(1, 0): 9, (1, 1): 9, (2, 0): 10}, 2, devices=2)
    assert remat.solve(given, algorithm="terapipe").to_dict()["cut"] == [2]
    auto = remat.solve(given)
    assert auto.makespan == 60
    assert "cut" not in auto.to_dict() or auto.to_dict()["cut"] == [2]


def test_auto_takes_slices():
    given = document({(1, 0): 1, (1, 1): 1, (2, 0): 10}, 2, devices=2)
    auto = remat.solve(given)
    assert (auto.algorithm, auto.makespan) == ("terapipe", 9)
    assert any("whole sequences: 60" in note for note in auto.notes)


def test_bounds_hold_for_every_cut():
    """Bounds account for slices, which may be faster than whole sequences."""
    given = document({(1, 0): 1, (1, 1): 1, (2, 0): 10}, 2, devices=2)
    whole = remat.solve(given, algorithm="gpipe")
    assert whole.makespan == 60
    assert whole.lower_bound <= 9
    assert whole.status == "feasible"


def test_too_little_memory():
    given = document({(1, 0): 1, (1, 1): 1, (2, 0): 2}, 2, devices=2)
    result = remat.solve(given, algorithm="terapipe", budget=1)
    assert result.makespan is None
    assert result.status == "unknown"


def test_others_know_no_slices():
    given = document({(1, 0): 1, (1, 1): 1}, 2, devices=2)
    given = given | {"micro_batches": 2, "tokens": given["tokens"] | {"cut": [1, 1]}}
    with pytest.raises(remat.OptionError, match="does not support sequences that are cut into slices"):
        remat.solve(given, algorithm="1f1b")
    assert remat.solve(given).makespan == 9
    plain = {key: value for key, value in given.items() if key != "tokens"}
    with pytest.raises(remat.OptionError, match="the instance has no tokens"):
        remat.solve(plain, algorithm="terapipe")


def test_slices_that_make_up_no_sequence():
    given = document({(1, 0): 1}, 2, devices=2)
    with pytest.raises(remat.OptionError, match="no slices of the instance make up a whole sequence"):
        remat.solve(given, algorithm="terapipe")
    assert remat.solve(given).makespan is not None


def test_a_backward_that_does_not_wait_hangs():
    """In ascending order, the first slice's backward waits for the second's, later in the same list."""
    given = document({(1, 0): 1, (1, 1): 1}, 2, devices=1)
    given = given | {"micro_batches": 2, "tokens": given["tokens"] | {"cut": [1, 1]}}
    load(given)
    orders = {"d": ["F0.0", "F0.1", "B0.0", "B0.1"]}
    plan = {"schema": "remat.schedule/2", "stages": [{"layers": [1], "device": "d"}], "orders": orders}
    report = remat.verify(given, plan)
    assert [violation.rule for violation in report.violations] == ["deadlock"]


@pytest.mark.parametrize("mode", ["blocking", "rendezvous", "grouped"])
def test_transfers_that_hold_devices_up(mode):
    """All forwards first, in one direction, cause no deadlock."""
    times = {(1, 0): 1, (1, 1): 2, (2, 0): 3}
    devices = [{"name": "d", "count": 3}]
    cluster = {"devices": devices, "levels": [{"latency": 1}]}
    free = remat.solve(document(times, 2, devices=3, sequences=2, cluster=cluster), algorithm="terapipe")
    held = document(times, 2, devices=3, sequences=2, cluster=cluster | {"transfers": mode})
    result = remat.solve(held, algorithm="terapipe")
    assert result.makespan >= free.makespan
    assert referee.check(load_cut(held, result), result.to_dict()).makespan == result.makespan
