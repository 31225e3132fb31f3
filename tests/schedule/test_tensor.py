"""Test layers that several devices run together: schedule fields, times and bytes."""

import copy
import random

import pytest

import remat
from remat.errors import InstanceError, OptionError
from remat.instance import PipelineInstance, digest, load
from remat.instance.fast_validation import plainly
from remat.plugin import Problem
from remat.schedule.orders import spread_in_groups
from tests.oracles import referee
from tests.seeds import seeds


def entry(count, **more):
    """Return what one of so many devices has: its share of the work, and what they add up."""
    return {
        "forward_time": 8 // count,
        "backward_time": 16 // count,
        "output_size": 10,
        "saved_size": 4 + 32 // count,
        "parameter_size": 40 // count,
        "optimizer_size": 80 // count,
        "update_time": 4 // count,
        "forward_collective_size": 8,
        "backward_collective_size": 16,
    } | more


def document(**more):
    """Return two layers that 2 or 4 devices may run together, and one that each runs alone, on six devices."""
    layer = {"name": "a", "repeat": 2, "forward_time": 8, "backward_time": 16, "output_size": 10, "saved_size": 36}
    layer |= {"parameter_size": 40, "optimizer_size": 80, "update_time": 4}
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": 4,
        "layers": [layer | {"tensor": {"2": entry(2), "4": entry(4)}}, {"forward_time": 3, "backward_time": 6}],
        "cluster": {
            "devices": [{"name": "g", "type": "g", "count": 4, "memory": 500}, {"name": "h", "count": 2}],
            "levels": [{"bandwidth": 4, "latency": 1}],
        },
    } | more


def plan(**more):
    """Return 1F1B of two stages, the first of which two devices run together."""
    first = ["F0.0", "F0.1", "B0.0", "F0.2", "B0.1", "F0.3", "B0.2", "B0.3"]
    return {
        "schema": "remat.schedule/2",
        "stages": [{"layers": {"from": 1, "to": 2}, "device": "g0", "tensor": 2}, {"layers": [3], "device": "g2"}],
        "orders": {"g0": first, "g2": [f"{phase}1.{batch}" for batch in range(4) for phase in "FB"]},
    } | more


def agreed(given, schedule):
    """Return the verifier's report on a plan on which the reference judge agrees."""
    report, verdict = remat.verify(given, schedule), referee.check(given, schedule)
    assert report.ok, report.violations
    assert report.makespan == verdict.makespan
    assert report.peak_memory == verdict.peaks
    return report


def test_they_wait_for_each_other():
    """F takes 4 and a ring of 2 rounds of 1 + 8 / (2 x 4) each: 8; B takes 8 + 2 (1 + 16 / 8) = 14."""
    report = agreed(document(), plan())
    assert report.busy["g0"] == 4 * 2 * (8 + 14) + 2 * 2
    assert report.busy["g1"] == report.busy["g0"]
    # Two micro-batches are there; parameters, their gradients and states are halves.
    assert report.peak_memory["g1"] == report.peak_memory["g0"]
    assert report.peak_memory["g0"] >= 2 * (20 + 20 + 40) + 2 * 2 * (20 + 10)
    assert report.peak_memory["g3"] == 0


def test_degrees_survive_a_round_trip():
    """Degrees above 1 are written, and the digest is of what is computed."""
    given = load(document())
    assert plainly(PipelineInstance, document()) == given
    assert digest(given) != digest(given.alone())
    assert digest(load(remat.load(document()))) == digest(given)
    layers = copy.deepcopy(document()["layers"])
    layers[0]["tensor"]["2"] |= {"gradient_size": 10, "parameter_gradient_size": 20, "weight_time": 0}
    assert digest(load(document(layers=layers))) == digest(given)
    without = [{key: value for key, value in layer.items() if key != "tensor"} for layer in document()["layers"]]
    assert digest(load(document(layers=without))) == digest(given.alone())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tensor": 3}, "layer 1 has no entry for 3 devices in `tensor`; it has 2, 4"),
        ({"device": "h1"}, "the stage needs 2 devices from h1 on, more than the 6 of the cluster allow"),
        ({"device": "g3"}, "g3 and h0 differ in type (g, h)"),
        ({"tensor": 0}, "expected how many devices run it together"),
        ({"tensor": True}, "expected how many devices run it together"),
        ({"part": [1, 2]}, "the instance does not split a micro-batch into 2 parts; it allows none"),
        ({"layers": {"from": 1, "to": 3}}, "layer 3 has no entry for 2 devices in `tensor`; it has none"),
    ],
)
def test_what_is_no_group(change, why):
    wrong = plan()
    wrong["stages"][0] |= change
    if "device" in change:
        wrong["orders"][change["device"]] = wrong["orders"].pop("g0")
    with pytest.raises(InstanceError) as caught:
        remat.verify(document(), wrong)
    assert why in str(caught.value)
    assert "$.stages[0]" in str(caught.value)


def test_memories_of_a_group_are_equal():
    devices = [{"name": "g0", "type": "g", "memory": 500}, {"name": "g1", "type": "g", "memory": 400}, {"name": "g2"}]
    given = document(cluster={"devices": devices})
    with pytest.raises(InstanceError, match=r"g0 and g1 differ in bytes \(500, 400\)"):
        remat.verify(given, plan())


def test_not_in_parts_too():
    """A layer whose micro-batches are shared in parts is run by one device in each."""
    half = {"forward_time": 4, "backward_time": 8}
    given = document(samples=2, copies=4, parts=[{"samples": 1, "layers": [half, half]}])
    wrong = plan()
    wrong["stages"][0] |= {"part": [1, 2]}
    with pytest.raises(InstanceError, match="in parts of micro-batches, or by several devices together, not both"):
        remat.verify(given, wrong)


def test_those_of_a_group_run_nothing_else():
    wrong = plan()
    wrong["stages"][1]["device"] = "g1"
    wrong["orders"]["g1"] = wrong["orders"].pop("g2")
    report = remat.verify(document(), wrong)
    assert [violation.rule for violation in report.violations] == ["initial-placement"]
    assert "g1 runs a stage alone, and one together with g0 to g1" in report.violations[0].message


def test_copies_of_a_group():
    """Alternating micro-batches: two groups of two hold the first layers, and exchange gradients."""
    given = document(copies=2, exchange="ring")
    stages = [{"layers": {"from": 1, "to": 2}, "device": device, "tensor": 2} for device in ("g0", "g2")]
    both = plan(stages=[*stages, {"layers": [3], "device": "h0"}])
    both["orders"] = {
        f"g{2 * k}": [f"{phase}{k}.{batch}" for batch in (k, k + 2) for phase in "FB"] for k in range(2)
    } | {"h0": [f"{phase}2.{batch}" for batch in range(4) for phase in "FB"]}
    report = agreed(given, both)
    assert report.makespan < agreed(given, plan()).makespan
    both["stages"][1]["tensor"] = 4
    given["cluster"]["devices"][0]["count"] = 6
    with pytest.raises(InstanceError, match="layer 1 is run by 2 devices together elsewhere"):
        remat.verify(given, both)


def test_copies_on_unlike_groups():
    levels = [{"devices": 3, "bandwidth": 8}, {"bandwidth": 4}]
    devices = [{"name": "g", "count": 6, "memory": 500}]
    given = document(copies=2, cluster={"devices": devices, "levels": levels})
    stages = [{"layers": {"from": 1, "to": 2}, "device": device, "tensor": 2} for device in ("g0", "g2")]
    with pytest.raises(InstanceError, match="layer 1 is on another group, whose links differ from those of this group"):
        remat.verify(given, plan(stages=[*stages, {"layers": [3], "device": "g5"}]))


@pytest.mark.parametrize(
    ("change", "where", "why"),
    [
        ({"2": entry(2), "03": entry(2)}, "tensor.03", "'03' is not a number of devices, such as 2"),
        ({"1": entry(2)}, "tensor.1", "'1' is not a number of devices, such as 2"),
        ({"two": entry(2)}, "tensor.two", "'two' is not a number of devices, such as 2"),
        ({"2": entry(2, weight_time=1)}, "tensor.2", "this has a weight_time, and the layer has none"),
        ({"2": entry(2, paired_time=1)}, "tensor.2", "the time of two operations at once is given for"),
        ({"2": entry(2, forward_time={"g": 1})}, "tensor.2", "this runs on other types of devices than the layer"),
        ({"2": {"forward_time": 1}}, "tensor.2.backward_time", "the key is missing"),
        ({"2": entry(2, collective=1)}, "tensor.2.collective", "unknown key"),
    ],
)
def test_what_is_no_entry(change, where, why):
    given = document()
    given["layers"][0]["tensor"] = change
    with pytest.raises(InstanceError) as caught:
        load(given)
    assert f"$.layers[0].{where}: {why}" in str(caught.value)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"weights": "stash"}, "with weights stash, each device runs its layers alone"),
        ({"sharding": {"data": 2}}, "one rank is modelled, whose devices run their layers alone"),
        (
            {"tokens": {"length": 2, "slices": [{"tokens": 2, "layers": [entry(1)] * 2}]}},
            "the slices of a sequence are run by one device each",
        ),
    ],
)
def test_what_goes_not_with_groups(more, why):
    given = document(**more)
    given["layers"] = [
        {key: value for key, value in layer.items() if key != "update_time"} for layer in given["layers"]
    ]
    if "tokens" in more:
        row = {"forward_time": 1, "backward_time": 1}
        given["tokens"]["slices"][0]["layers"] = [row, row]
    with pytest.raises(InstanceError) as caught:
        load(given)
    assert f"$.layers[0].tensor: {why}" in str(caught.value)


def drawn(chance):
    """Return a pipeline all of whose layers 2 and 3 devices may run together, on twelve devices."""

    def size():
        return chance.randint(0, 30)

    def work():
        return {key: chance.randint(1, 20) for key in ("forward_time", "backward_time")} | {
            key: size() for key in ("output_size", "saved_size", "parameter_size", "optimizer_size", "update_time")
        }

    def together():
        return work() | {f"{phase}_collective_size": 6 * size() for phase in ("forward", "backward")}

    halves = chance.random() < 0.3
    layers = []
    for _ in range(chance.randint(2, 5)):
        layer = work() | {"repeat": chance.randint(1, 2), "tensor": {"2": together(), "3": together()}}
        if halves:
            for one in (layer, *layer["tensor"].values()):
                one |= {"weight_time": chance.randint(1, 9), "weight_saved_size": size()}
        layers.append(layer)
    level = {"bandwidth": chance.randint(1, 4), "latency": chance.randint(0, 3)}
    levels = chance.choice([[level], [{"devices": 6, "bandwidth": 9}, level]])
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": chance.randint(2, 5),
        "layers": layers,
        "cluster": {"devices": [{"name": "g", "count": 12}], "levels": levels},
    }


@pytest.mark.parametrize("number", seeds(12, 200))
def test_as_one_device_for_all(number):
    """Groups have the times and peaks of the instance in which each is one device."""
    chance = random.Random(number)
    given = drawn(chance)
    count = chance.choice([2, 3])
    instance = load(given)
    one = instance.of_tensor(count)
    assert one.cluster.names == [f"g{k}" for k in range(0, 12, count)]
    name = chance.choice(["gpipe", "1f1b", "pipe-search"])
    try:
        result = remat.solve(one, algorithm=name, seed=number)
    except OptionError:  # fewer layers than devices
        given["cluster"]["devices"][0]["count"] = 2 * count
        given["cluster"]["levels"] = given["cluster"]["levels"][-1:]
        instance = load(given)
        one = instance.of_tensor(count)
        result = remat.solve(one, algorithm=name, seed=number)
    orders = spread_in_groups(result.orders, count)
    schedule = {"schema": "remat.schedule/2"} | orders.to_document(instance.cluster.names)
    report = agreed(given, schedule)
    assert report.makespan == result.makespan
    assert Problem(instance, instance.build_machine()).least_makespan <= report.makespan
    for index, device in enumerate(instance.cluster.names):
        assert report.peak_memory[device] == result.peak_memory[f"g{index - index % count}"]


@pytest.mark.parametrize(
    ("count", "more", "why"),
    [
        (4, {}, "groups of 4 do not divide the 6 devices"),
        (2, {}, "entry 2 of the layers has no entry for 2 devices in `tensor`"),
        (3, {}, "layer 'a' has no entry for 3 devices in `tensor`"),
    ],
)
def test_what_cannot_be_in_groups(count, more, why):
    given = document(**more)
    if count == 4:
        given["layers"] = given["layers"][:1]
    with pytest.raises(ValueError, match=why):
        load(given).of_tensor(count)
