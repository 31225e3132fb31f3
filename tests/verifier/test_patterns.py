"""Patterns before the referee: what spoils one is found, by the right rule, and what is none is refused by its path."""

import copy

import pytest

import remat
from remat.errors import InstanceError
from tests.oracles import referee

INSTANCE = {
    "schema": "remat.instance/3",
    "kind": "pipeline",
    "units": {"time": "unit", "memory": "unit"},
    "layers": [
        {"forward_time": 1, "backward_time": 2, "saved_size": 10, "parameter_size": 100, "parameter_gradient_size": 0}
    ]
    * 3,
    "micro_batches": 6,
    "weights": "stash",
    "cluster": {"devices": [{"name": "gpu", "count": 3}], "levels": [{"latency": 1}]},
}


def stage(index, **more):
    return {"layers": [index + 1], "device": f"gpu{index}", **more}


def beat(kind, name, time):
    return {kind: name, "start": time % 3, "shift": time // 3}


PLAN = {
    "schema": "remat.schedule/2",
    "stages": [stage(k) for k in range(3)],
    "period": 3,
    "pattern": [
        beat("run", "F0", 0),
        beat("copy", "F0", 1),
        beat("run", "F1", 2),
        beat("copy", "F1", 3),
        beat("run", "F2", 4),
        beat("run", "B2", 5),
        beat("copy", "B2", 7),
        beat("run", "B1", 9),
        beat("copy", "B1", 11),
        beat("run", "B0", 13),
    ],
}


def at(name, kind="run"):
    return next(k for k, entry in enumerate(PLAN["pattern"]) if entry.get(kind) == name)


def agreed(instance, plan):
    """Return the verifier's report on a pattern on which the second referee agrees."""
    report, verdict = remat.verify(instance, plan), referee.check(instance, plan)
    assert report.ok, report.violations
    assert verdict.ok, verdict.violations
    assert report.makespan == verdict.makespan
    assert report.objective == verdict.objective
    assert dict(report.steady.peaks) == verdict.steady_peaks
    assert report.peak_memory == verdict.peaks
    steady = report.steady
    assert (steady.in_flight, steady.versions, steady.staleness) == (
        verdict.in_flight,
        verdict.versions,
        verdict.staleness,
    )
    return report


def test_a_pattern_as_it_should_be():
    report = agreed(INSTANCE, PLAN)
    steady = report.steady
    assert (steady.period, steady.in_flight, steady.versions, steady.staleness) == (3, (5, 3, 1), (5, 3, 1), (4, 2, 0))
    assert dict(steady.peaks) == {"gpu0": 550, "gpu1": 330, "gpu2": 110}
    assert report.peak_memory == dict(steady.peaks)
    assert steady.bubble == {"gpu0": 0, "gpu1": 0, "gpu2": 0}
    assert steady.busy["gpu0->gpu1"] == 1
    assert report.makespan == 15 + 5 * 3


def moved(name, time, kind="run"):
    def spoil(instance, plan):
        plan["pattern"][at(name, kind)] = beat(kind, name, time)

    return spoil


def without(name, kind="run"):
    def spoil(instance, plan):
        del plan["pattern"][at(name, kind)]

    return spoil


def added(name, time, kind="run"):
    def spoil(instance, plan):
        plan["pattern"].append(beat(kind, name, time))

    return spoil


def staged(index, **change):
    def spoil(instance, plan):
        plan["stages"][index] |= change

    return spoil


def versions(*counts):
    def spoil(instance, plan):
        for one, count in zip(plan["stages"], counts, strict=True):
            one["versions"] = count

    return spoil


def capacity(size):
    def spoil(instance, plan):
        instance["cluster"]["devices"][0]["memory"] = size

    return spoil


def weights(**change):
    def spoil(instance, plan):
        instance.update(change)

    return spoil


def period(value):
    def spoil(instance, plan):
        plan["period"] = value
        for entry in plan["pattern"]:
            entry["start"] %= value

    return spoil


FAULTS = {
    "a backward meets the next forward": (moved("B0", 14), "period-overlap"),
    "a forward meets a backward of another period": (moved("F2", 3), "period-overlap"),
    "two transfers on one link": (
        weights(cluster={"devices": [{"name": "gpu", "count": 3}], "levels": [{"latency": 4}]}),
        "period-overlap",
    ),
    "a period that is too short": (period(2), "period-overlap"),
    "read before it has arrived": (moved("F0", 2, "copy"), "period-precedence"),
    "sent before it is computed": (moved("F0", 0, "copy"), "period-precedence"),
    "a shift too little": (moved("B0", 10), "period-precedence"),
    "a gradient a period too late": (moved("B1", 14, "copy"), "period-precedence"),
    "a transfer that is missing": (without("F1", "copy"), "period-precedence"),
    "a transfer that nobody reads": (added("F2", 5, "copy"), None),
    "a transfer that is there twice": (added("F0", 2, "copy"), "bad-step"),
    "an operation that is missing": (without("B1"), "bad-step"),
    "an operation that is there twice": (added("F2", 8), "bad-step"),
    "a half that there is not": (added("W1", 11), "bad-step"),
    "both halves of what has none": (added("BW1", 11), "bad-step"),
    "a layer in no stage": (staged(1, layers=[1]), "initial-placement"),
    "a layer in two stages": (staged(1, layers=[2, 3]), "initial-placement"),
    "a stage on a device that is busy": (staged(1, device="gpu0"), "period-overlap"),
    "a version too little": (versions(4, 3, 1), "version-mismatch"),
    "a byte too little": (capacity(549), "capacity"),
    "more in flight than two versions allow": (weights(weights="double", update_every=4), "version-mismatch"),
    "one of two versions": (
        lambda i, p: (weights(weights="double", update_every=5)(i, p), versions(2, 1, 1)(i, p)),
        "version-mismatch",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_patterns_are_found(name):
    spoil, rule = FAULTS[name]
    instance, plan = copy.deepcopy(INSTANCE), copy.deepcopy(PLAN)
    spoil(instance, plan)
    if rule is None:
        agreed(instance, plan)
        return
    report, verdict = remat.verify(instance, plan), referee.check(instance, plan)
    assert rule in verdict.rules
    assert not report.ok
    assert report.violations[0].rule == rule, report.violations


def test_a_transfer_after_its_only_reader_is_not_malformed():
    """Placement must not let the transfer drop what it brings: that is a fault of the pattern alone."""
    instance, plan = copy.deepcopy(INSTANCE), copy.deepcopy(PLAN)
    moved("B1", 5)(instance, plan)
    found = {violation.rule for violation in remat.verify(instance, plan).violations}
    assert found == {"period-precedence", "period-overlap"}
    assert "bad-step" not in referee.check(instance, plan).rules


@pytest.mark.parametrize(
    ("spoil", "in_flight", "versions_"),
    [
        (capacity(550), (5, 3, 1), (5, 3, 1)),
        (versions(6, 3, 1), (5, 3, 1), (6, 3, 1)),
        (weights(weights="double", update_every=5), (5, 3, 1), (2, 2, 1)),
        (weights(weights="single"), (5, 3, 1), (1, 1, 1)),
        (weights(weights="predicted"), (5, 3, 1), (2, 2, 1)),
    ],
)
def test_what_is_just_enough(spoil, in_flight, versions_):
    instance, plan = copy.deepcopy(INSTANCE), copy.deepcopy(PLAN)
    spoil(instance, plan)
    report = agreed(instance, plan)
    assert (report.steady.in_flight, report.steady.versions) == (in_flight, versions_)
    late = 1 if instance.get("weights") == "double" else 5
    assert report.steady.staleness == tuple(min(late, flight - 1) for flight in in_flight)


def entry(**change):
    return lambda instance, plan: plan["pattern"][0].update(change)


@pytest.mark.parametrize(
    ("spoil", "path", "why"),
    [
        (entry(start=3), r"$.pattern[0].start", "starts at 3, and the period is 3"),
        (entry(shift=-1), r"$.pattern[0].shift", "a whole number of periods"),
        (entry(shift=True), r"$.pattern[0].shift", "a whole number of periods"),
        (entry(shift=10**7), r"$.pattern[0].shift", "a whole number of periods"),
        (entry(start="soon"), r"$.pattern[0].start", "soon"),
        (entry(run="F9"), r"$.pattern[0]", "there are 3 stages"),
        (entry(run="X0"), r"$.pattern[0]", "is not an operation such as F2"),
        (entry(run=7), r"$.pattern[0]", "is not an operation"),
        (entry(end=7), r"$.pattern[0]", "the keys run or copy, start, and shift"),
        (lambda i, p: p["pattern"].append(3), r"$.pattern[10]", "expected an object"),
        (lambda i, p: p.update(pattern={}), "$.pattern", "expected a list"),
        (lambda i, p: p.update(pattern=[]), "$.pattern", "expected a list"),
        (lambda i, p: p.update(period=0), "$.period", "longer than 0"),
        (lambda i, p: p.update(period=None), "$.period", ""),
        (lambda i, p: p.pop("period"), "$.period", ""),
        (lambda i, p: p.pop("pattern"), "$.pattern", "expected a list"),
        (lambda i, p: p.pop("stages"), "$.stages", "expected a list of stages"),
        (lambda i, p: p.update(steps=[]), "$.steps", "steps and a pattern exclude each other"),
        (lambda i, p: p.update(orders={}), "$.orders", "orders and a pattern exclude each other"),
        (lambda i, p: p["stages"][0].update(versions=2), "$.stages", "either all stages or none"),
        (lambda i, p: p["stages"][0].update(versions=0), r"$.stages[0].versions", "a whole number"),
        (lambda i, p: p["stages"][0].update(data=2), r"$.stages[0]", "the keys layers and device"),
        (lambda i, p: (p.pop("period"), p.pop("pattern")), "$", "expected a period and a pattern"),
        (weights(weights="flush"), "$.period", "only pipelines whose weights"),
    ],
)
def test_what_is_no_pattern(spoil, path, why):
    instance, plan = copy.deepcopy(INSTANCE), copy.deepcopy(PLAN)
    spoil(instance, plan)
    with pytest.raises(InstanceError) as caught:
        remat.verify(instance, plan)
    assert caught.value.path == path
    assert why in str(caught.value)


def test_predicted_weights_take_two_versions_and_one_momentum():
    """Layer 1 on gpu0 with five micro-batches in flight adds one version of its parameters and 7 bytes of momentum."""
    plan = copy.deepcopy(PLAN)
    peaks = {}
    for mode, momentum in (("single", 0), ("predicted", 0), ("predicted", 7)):
        layers = copy.deepcopy(INSTANCE["layers"])
        layers[0]["discrepancy_size"] = momentum
        instance = {**INSTANCE, "weights": mode, "layers": layers}
        report = agreed(instance, plan)
        assert report.ok, report.violations
        peaks[mode, momentum] = report.steady.peaks["gpu0"]
    more = INSTANCE["layers"][0]["parameter_size"]
    assert peaks["predicted", 0] == peaks["single", 0] + more
    assert peaks["predicted", 7] == peaks["predicted", 0] + 7


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"weights": "double"}, "$.weights"),
        ({"update_every": 3}, "$.update_every"),
        ({"weights": "double", "update_every": 0}, "$.update_every"),
        ({"copies": 2}, "$.copies"),
        ({"layers": [{**INSTANCE["layers"][0], "discrepancy_size": 3}]}, "$.layers[0].discrepancy_size"),
        ({"weights": "stale"}, "$.weights"),
    ],
)
def test_instances_that_contradict_themselves(change, path):
    with pytest.raises(InstanceError) as caught:
        remat.verify({**INSTANCE, **change}, PLAN)
    assert caught.value.path == path


@pytest.mark.parametrize("exponent", [57, 58, 59, 60])
@pytest.mark.parametrize("count", [1, 2])
def test_plans_of_any_length_verify_after_a_round_trip(exponent, count):
    """Times beyond 2^62 are floats: short operations keep their places between long ones."""
    layers = [
        {"forward_time": 2**exponent + 6, "backward_time": 1, "saved_size": 1, "output_size": 6},
        {"forward_time": 2 ** (exponent + 1) + 3, "backward_time": 6, "saved_size": 2, "parameter_size": 5},
    ]
    cluster = {"devices": [{"name": "gpu", "count": count}], "levels": [{"latency": 2**exponent + 6}]}
    instance = INSTANCE | {"layers": layers, "micro_batches": 3, "weights": "predicted", "cluster": cluster}
    result = remat.solve(remat.load(instance), algorithm="1f1b-star")
    report = remat.verify(instance, result.to_dict())
    assert report.ok, report.violations
    assert report.steady.period == result.steady.period
