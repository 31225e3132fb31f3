"""Test `remat.plan` over tensor degrees: the degrees tried, the choice, and its validity for the instance."""

import random
from dataclasses import replace

import pytest

import remat
from remat.bridges.megatron import megatron_flags
from remat.bridges.pipelining.exporting import export_csv
from remat.errors import OptionError
from remat.instance import load
from remat.instance.base import instance_document
from remat.report.plot.schedule import plot
from remat.report.text.plan_view import plan_document, plan_lines
from remat.report.views.forward_backward import passes_of
from remat.solving.verifying import examine
from tests.oracles import referee
from tests.schedule.test_tensor import drawn
from tests.seeds import seeds

FEW = {"moves": 20, "zoo": False}


def net(**more):
    """Return four equal layers on four devices; two take half the time and the bytes of one, four a bit less time."""
    work = {"forward_time": 40, "backward_time": 80, "saved_size": 40, "output_size": 2, "parameter_size": 40}
    half = {"forward_time": 20, "backward_time": 40, "saved_size": 20, "output_size": 2, "parameter_size": 20}
    most = half | {"forward_time": 18, "backward_time": 36}
    work |= {"update_time": 4, "optimizer_size": 8}
    tensor = {"2": half | {"update_time": 2, "optimizer_size": 4, "forward_collective_size": 4}, "4": most}
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": 2,
        "layers": [work | {"repeat": 4, "tensor": tensor}],
        "cluster": {"devices": [{"name": "g", "count": 4}], "levels": [{"bandwidth": 2}]},
    } | more


def judged(document, planned):
    """Return the plan's document after both judges accept it (only one with recomputation)."""
    schedule = planned.result.to_dict()
    report = remat.verify(document, schedule)
    assert report.ok, report.violations
    assert report.makespan == planned.result.makespan
    assert report.peak_memory == planned.result.peak_memory
    assert report.recompute_time == planned.result.report.recompute_time
    if all("recompute" not in stage for stage in schedule["stages"]):
        verdict = referee.check(document, schedule)
        assert (verdict.makespan, verdict.peaks) == (report.makespan, report.peak_memory)
    return schedule


def test_all_degrees_are_tried_and_the_best_is_taken():
    planned = remat.plan(net(), options=FEW)
    tried = {degrees.tensor: makespan for degrees, makespan in planned.tried.items()}
    assert set(tried) == {1, 2, 4}
    assert planned.result.makespan == min(tried.values()) == tried[planned.degrees.tensor]
    assert planned.degrees.tensor > 1
    schedule = judged(net(), planned)
    assert {stage["tensor"] for stage in schedule["stages"]} == {planned.degrees.tensor}
    assert 0 < planned.result.lower_bound <= planned.result.makespan
    for count in (1, 2, 4):
        one = remat.plan(net(), tensor=[count], options=FEW)
        assert one.result.makespan == tried[count]
        assert one.degrees.tensor == count


def test_stages_of_several_degrees():
    """One layer takes most of the time; two devices run it together, and others run the rest alone."""
    (layer,) = net()["layers"]
    one = {"forward_time": 18, "backward_time": 40, "saved_size": 4, "output_size": 2}
    slow = {key: value for key, value in layer.items() if key != "update_time"} | {"repeat": 1}
    slow["tensor"] = {"2": layer["tensor"]["2"] | {"update_time": 0}}
    both = one | {"tensor": {"2": one}}
    document = net(layers=[both, slow, both], micro_batches=6)
    planned = remat.plan(document, options={"moves": 20})
    assert str(planned.degrees) == "data 1, tensor by stage"
    assert planned.result.makespan == min(planned.tried.values())
    assert [stage["tensor"] for stage in judged(document, planned)["stages"] if "tensor" in stage] == [2]
    assert plan_document(planned)["degrees"]["tensor"] == 0
    flags = megatron_flags(planned)
    assert "tensor-model-parallel-size 2" in flags.flags
    assert "1, 2, 1 devices together" in flags.notes[0]
    only = remat.plan(document, tensor=[1, 2], options=FEW)
    assert {degrees.tensor for degrees in only.tried} == {1, 2}
    tight = remat.plan(document, budget=170, options={"moves": 20})
    assert tight.result.makespan is None or dict(plan_lines(tight))["recomputation"]
    alone = remat.plan(document, tensor=[1], budget=170, options={"moves": 20})
    mixed = replace(alone, degrees=replace(alone.degrees, tensor=0))  # counted stage by stage: the same
    assert alone.recompute_time == mixed.recompute_time == alone.result.report.recompute_time


def test_pictures_have_all_devices(tmp_path):
    """Devices of a group run the same operations at the same time, and hold the same bytes."""
    result = remat.plan(net(), tensor=[2], options=FEW).result
    found = passes_of(result)
    assert sorted(set(found.device.tolist())) == [0, 1, 2, 3]
    for first in (0, 2):
        one, other = (found.device == first, found.device == first + 1)
        for column in (found.phase, found.chunk, found.batch, found.start, found.end, found.half):
            assert column[one].tolist() == column[other].tolist()
    alone = passes_of(remat.plan(net(), tensor=[1], options=FEW).result)
    assert len(alone.device) == len(remat.plan(net(), tensor=[1], options=FEW).result.orders)
    plot(result, tmp_path / "plan.svg", view="devices")
    assert "g3" in (tmp_path / "plan.svg").read_text()


def test_a_csv_has_a_row_for_each_group():
    result = remat.plan(net(), tensor=[2], options={**FEW, "recompute": "none", "placement": "chain"}).result
    found = export_csv(examine(net(), result.to_dict()))
    assert len(found.rows) == 2
    assert "up to 2 devices run a stage together" in found.notes[0]


def test_alone_it_is_the_plan_of_the_instance_without():
    """Asked for degree 1 only, bounds are those of devices that run their layers alone."""
    document = net()
    del document["layers"][0]["tensor"]
    one, other = remat.plan(net(), tensor=[1], options=FEW), remat.plan(document, options=FEW)
    assert one.result.makespan == other.result.makespan
    assert one.result.lower_bound == other.result.lower_bound
    assert not one.instance.has_tensor
    assert list(other.tried) == [other.degrees]


def test_groups_have_room_where_one_device_has_none():
    """A plan fits with groups of two devices although it exceeds the memory of a single one."""
    budget = 260
    with_groups = remat.plan(net(), budget=budget, tensor=[1, 2], options={**FEW, "recompute": "none"})
    alone = remat.plan(
        net(cluster=net()["cluster"] | {"devices": [{"name": "g", "count": 1}]}), budget=budget, options=FEW
    )
    assert alone.result.makespan is None
    assert with_groups.result.makespan is not None
    assert max(with_groups.result.peak_memory.values()) <= budget


@pytest.mark.slow
def test_nothing_found_in_groups_is_no_proof():
    planned = remat.plan(net(), budget=30, options=FEW)
    assert planned.result.makespan is None
    assert planned.result.status == "unknown"
    assert planned.result.lower_bound == 0


def test_ranks_run_their_layers_alone():
    planned = remat.plan(net(), data=[1, 2], tensor=[1, 2], options=FEW)
    assert {(degrees.data, degrees.tensor) for degrees in planned.tried} == {(1, 1), (2, 1), (1, 2)}
    with pytest.raises(OptionError, match="leave 1 among them"):
        remat.plan(net(), data=[2], tensor=[2], options=FEW)


def test_sizes_are_left_out_in_groups():
    """Micro-batches of another size have no entries for groups; those of the instance's own are planned in groups."""
    row = {"forward_time": 20, "backward_time": 40, "saved_size": 20, "output_size": 1}
    document = net(samples=2, sizes=[{"samples": 1, "layers": [row]}])
    planned = remat.plan(document, tensor=[1, 2], options=FEW)
    assert len(planned.tried) == 2
    grouped = remat.plan(document, tensor=[2], options=FEW)
    assert grouped.instance.samples == 2
    assert grouped.result.makespan == remat.plan(net(), tensor=[2], options=FEW).result.makespan
    assert remat.verify(instance_document(grouped.instance), grouped.result.to_dict()).ok


@pytest.mark.parametrize(
    ("tensor", "more", "why"),
    [
        ([3], {}, "has no entry for 3 devices in `tensor`"),
        ([2], {"cluster": {"devices": [{"name": "g", "count": 3}]}}, "groups of 2 do not divide the 3 devices"),
        ([2], {"cluster": {"devices": [{"name": "a"}, {"name": "b"}]}}, "a to b are devices of different kinds"),
        ([0], {}, "at least one device, not 0"),
        ([], {}, "expected numbers such as 1,2,4"),
        (
            [2],
            {"cluster": {"devices": [{"name": "g", "count": 6}], "levels": [{"devices": 3}, {"bandwidth": 2}]}},
            "groups of 2 do not fit into those of 3 devices of a level",
        ),
    ],
)
def test_degrees_that_do_not_fit(tensor, more, why):
    with pytest.raises(OptionError, match=why) as caught:
        remat.plan(net(**more), tensor=tensor, options=FEW)
    assert caught.value.argument == "tensor"


def test_budgets_of_a_group_are_equal():
    with pytest.raises(OptionError, match="the devices of groups of 2 differ in memory"):
        remat.plan(net(), tensor=[2], budget={"g1": 100}, options=FEW)
    planned = remat.plan(net(), budget={"g1": 1000}, options=FEW)
    assert {degrees.tensor for degrees in planned.tried} == {1}


def test_what_more_would_buy():
    from remat.solving.questions.binding import binding

    planned = remat.plan(net(), budget=400, tensor=[2], options=FEW)
    found = binding(planned, options=FEW)
    assert list(found.more) == ["50 more of memory on each device"]
    assert found.more["50 more of memory on each device"] <= planned.result.makespan


@pytest.mark.parametrize("number", seeds(2, 5))
def test_plans_of_drawn_instances_are_valid(number):
    chance = random.Random(number)
    document = drawn(chance)
    document["cluster"]["devices"][0]["count"] = 6
    document["cluster"]["levels"] = document["cluster"]["levels"][-1:]
    planned = remat.plan(document, tensor=[2, 3], options=FEW)
    judged(document, planned)
    most = max(planned.result.peak_memory.values())
    again = remat.plan(document, tensor=[2, 3], budget=chance.randint(2 * most // 3, most), options=FEW)
    if again.result.makespan is not None:
        judged(document, again)
    assert load(document).has_tensor


@pytest.mark.slow
def test_a_plan_of_another_algorithm_is_a_plan():
    """Embedding and head are small and the device full: `piper` balances them where `pipe-plan` finds nothing."""
    block = {"name": "block", "repeat": 32, "forward_time": 8, "backward_time": 8, "weight_time": 8}
    block |= {"output_size": "64MB", "saved_size": "1.5GB", "weight_saved_size": "700MB"}
    ends = [
        {"name": "embed", "forward_time": 1, "backward_time": 2, "output_size": "64MB", "saved_size": "10MB"},
        {"name": "head", "forward_time": 6, "backward_time": 12, "output_size": "1MB", "saved_size": "4GB"},
    ]
    large = {"parameter_size": "1GB", "optimizer_size": "6GB"}
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "micro_batches": 16,
        "units": {"time": "ms"},
        "layers": [
            ends[0] | large,
            block | {"parameter_size": "400MB", "optimizer_size": "2.4GB"},
            ends[1] | large,
        ],
        "cluster": {"devices": [{"name": "gpu", "count": 8, "memory": "22GB"}], "levels": [{"bandwidth": "300GB/s"}]},
    }
    planned = remat.plan(document)
    assert planned.result.report is not None
    assert max(planned.result.peak_memory.values()) <= 22 * 10**9
