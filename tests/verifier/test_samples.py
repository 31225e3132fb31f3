"""Patterns of samples before both judges: modulo the period, and unrolled; what spoils one is found by its rule."""

import copy
import random

import pytest

import remat
from remat.errors import InstanceError
from tests.oracles import samples
from tests.verifier.sample_streams import homes_of, pattern_of, spoilt, stream

PERIODIC = {
    "period-overlap": {"resource-busy"},
    "period-precedence": {"read-missing", "value-busy", "free-missing"},
}
"""Map from rules of patterns to the rules of their unrolled steps."""


def alike(report, verdict):
    """Return whether both judges agree on a pattern."""
    return report.ok == verdict.ok and (
        not report.ok
        or (
            dict(report.steady.peaks) == verdict.steady_peaks
            and report.steady.time_per_sample == verdict.time_per_sample
            and report.steady.latency == verdict.latency
        )
    )


def put_before_both(seed):
    chance = random.Random(seed)
    document = stream(chance, room=(8, 40) if chance.random() < 0.4 else None)
    count = chance.choice([1, 1, 2, 3])
    placed, schedule = pattern_of(document, homes_of(chance, document, count))
    tries = [schedule, *(spoilt(chance, schedule) for _ in range(3))]
    for number, one in enumerate(tries):
        if not one["pattern"]:
            continue
        try:
            report = remat.verify(document, one)
        except InstanceError:
            assert number, "the placement is a pattern"
            continue
        verdict = samples.judge(document, one)
        assert alike(report, verdict), (seed, number, report.violations, verdict.rules, report.steady, verdict.peaks)
        if not number:
            assert report.ok == placed.fits or report.ok, (seed, report.violations)
            if report.ok:
                peaks = tuple(report.steady.peaks.values())
                assert all(one <= other for one, other in zip(peaks, placed.peaks, strict=True)), seed


@pytest.mark.parametrize("seed", range(60))
def test_verifier_and_referee_agree_on_drawn_streams(seed):
    put_before_both(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 4000, 100))
def test_both_judges_agree_on_many(first):
    for seed in range(first, first + 100):
        put_before_both(10_000 + seed)


INSTANCE = {
    "schema": "remat.instance/3",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "stream": 3,
    "machine": {
        "memories": [{"name": "a", "capacity": 20}, {"name": "b"}],
        "processors": [{"name": "pa", "memory": "a"}, {"name": "pb", "memory": "b"}],
        "links": [{"source": one, "target": other, "bandwidth": 1} for one, other in ("ab", "ba")],
    },
    "inputs": [{"value": "w", "memory": "any"}, {"value": "v", "memory": "any", "copies": 2}],
    "values": [{"id": "w", "size": 5}, {"id": "v", "size": 4}, {"id": "x", "size": 2}],
    "tasks": [
        {"id": "first", "time": 3, "reads": ["w"], "writes": ["x"]},
        {"id": "then", "time": 4, "reads": ["x", "v"], "writes": []},
    ],
}
PLAN = {
    "schema": "remat.schedule/2",
    "initial": {"w": ["a"], "v": ["b"]},
    "period": 4,
    "pattern": [
        {"run": "first", "on": ["pa"], "start": 0, "shift": 0},
        {"copy": "x", "from": "a", "to": "b", "start": 3, "shift": 0},
        {"run": "then", "on": ["pb"], "start": 1, "shift": 1},
    ],
}


def test_a_pattern_as_it_should_be():
    report = remat.verify(INSTANCE, PLAN)
    assert report.ok, report.violations
    steady = report.steady
    assert (steady.period, steady.samples, steady.time_per_sample, steady.latency) == (4, 1, 4, 9)
    assert steady.in_flight == (3,)
    assert dict(steady.peaks) == {"a": 5 + 2 + 2, "b": 4 + 2 + 2}
    assert steady.busy["pa"] == 3
    assert report.makespan == 9 + 2 * 4
    assert report.objective == 4


def test_samples_that_take_turns():
    """Two samples a period: the second task of one of them where the first is."""
    plan = copy.deepcopy(PLAN) | {"initial": {"w": ["a"], "v": ["a", "b"]}, "period": 10}
    plan["pattern"] += [
        {"run": "first", "on": ["pa"], "start": 3, "shift": 0, "sample": 1},
        {"run": "then", "on": ["pa"], "start": 6, "shift": 0, "sample": 1},
    ]
    plan["pattern"][2] |= {"start": 5, "shift": 0}
    report = remat.verify(INSTANCE, plan)
    assert report.ok, report.violations
    assert (report.steady.samples, report.steady.time_per_sample) == (2, 5)


def test_samples_in_flight_are_counted_up_to_rounding():
    """A sample ends where the next one begins: 0.1 + 0.3 and 0.2 + 0.2 differ in the last bit."""
    instance = copy.deepcopy(INSTANCE)
    instance["tasks"][0]["time"], instance["tasks"][1]["time"] = 0.1, 0.2
    pattern = [
        {"run": "first", "on": ["pa"], "start": 0.1, "shift": 0},
        {"run": "then", "on": ["pa"], "start": 0.2, "shift": 0},
    ]
    report = remat.verify(instance, PLAN | {"initial": {"w": ["a"], "v": ["a"]}, "period": 0.3, "pattern": pattern})
    assert report.ok, report.violations
    assert 0.2 + 0.2 - 0.3 > 0.1
    assert report.steady.in_flight == (1,)


def changed(**change):
    def spoil(instance, plan):
        plan.update(change)

    return spoil


def entry(number, **change):
    def spoil(instance, plan):
        plan["pattern"][number].update(change)

    return spoil


def added(**more):
    def spoil(instance, plan):
        plan["pattern"].append({"start": 0, "shift": 0} | more)

    return spoil


def without(number):
    def spoil(instance, plan):
        del plan["pattern"][number]

    return spoil


def capacity(size):
    def spoil(instance, plan):
        instance["machine"]["memories"][0]["capacity"] = size

    return spoil


BROKEN = {
    "overlapping runs": (added(run="then", on=["pa"], start=2), "period-overlap"),
    "too early": (entry(2, shift=0), "period-precedence"),
    "no copy": (without(1), "period-precedence"),
    "not run": (without(2), "required-missing"),
    "a full memory": (capacity(8), "capacity"),
    "an input that is copied": (added(**{"copy": "w", "from": "a", "to": "b"}), "bad-step"),
    "an input that lies nowhere": (changed(initial={"w": ["a"]}), "initial-placement"),
    "an input in too many places": (changed(initial={"w": ["a", "b"], "v": ["b"]}), "initial-placement"),
    "what is copied in vain": (added(**{"copy": "x", "from": "b", "to": "a", "start": 2, "shift": 1}), "capacity"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_spoils_a_pattern(name):
    spoil, rule = BROKEN[name]
    instance, plan = copy.deepcopy(INSTANCE), copy.deepcopy(PLAN)
    spoil(instance, plan)
    report = remat.verify(instance, plan)
    assert rule in {violation.rule for violation in report.violations}, report.violations
    verdict = samples.judge(instance, plan)
    assert verdict.rules & PERIODIC.get(rule, {rule}), verdict.rules


NO_PATTERN = {
    "no period": (changed(period=None), r"\$\.period"),
    "an empty pattern": (changed(pattern=[]), r"\$\.pattern"),
    "an unknown task": (entry(0, run="last"), r"\$\.pattern\[0\]\.run: unknown task 'last'"),
    "an unknown memory": (entry(1, to="c"), r"\$\.pattern\[1\]\.to: unknown memory 'c'"),
    "two processors": (entry(0, on=["pa", "pb"]), r"\$\.pattern\[0\]\.on"),
    "a start beyond the period": (entry(0, start=4), r"\$\.pattern\[0\]\.start"),
    "a negative shift": (entry(0, shift=-1), r"\$\.pattern\[0\]\.shift"),
    "a sample that nobody knows": (entry(0, sample=2), r"sample 1 of the .* has no operations"),
    "steps beside it": (changed(steps=[]), r"\$\.steps: steps and a pattern exclude each other"),
    "stages beside it": (changed(stages=[]), r"\$\.stages"),
    "an unknown key": (entry(0, drop=["x"]), r"\$\.pattern\[0\]: expected an object"),
}


@pytest.mark.parametrize("name", NO_PATTERN)
def test_what_is_no_pattern_is_refused_by_its_path(name):
    spoil, message = NO_PATTERN[name]
    plan = copy.deepcopy(PLAN)
    spoil(INSTANCE, plan)
    with pytest.raises(InstanceError, match=message):
        remat.verify(INSTANCE, plan)


def test_a_stream_wants_a_pattern_and_nobody_else_does():
    with pytest.raises(InstanceError, match="samples follow each other without end"):
        remat.verify(INSTANCE, {"schema": "remat.schedule/1", "steps": []})
    once = {key: value for key, value in INSTANCE.items() if key != "stream"}
    with pytest.raises(InstanceError, match="and streams of samples have a pattern"):
        remat.verify(once, PLAN)
