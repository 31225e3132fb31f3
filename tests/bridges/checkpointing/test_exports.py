"""Plans as checkpointing policies: their stated figures are the verifier's, on drawn chains and pipelines."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.bridges.checkpointing.exporting import export_policy
from remat.bridges.checkpointing.formats import CHAIN_FORMATS
from remat.bridges.checkpointing.pipelines import PIPELINE_FORMATS
from remat.bridges.checkpointing.policy import Policy, chain_plan
from remat.errors import OptionError
from remat.solving.verifying import examine
from tests.bridges.pipelining.cases import named, pipeline

SIZES = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(0, 12), st.integers(0, 3))
CHAINS = st.lists(SIZES, min_size=1, max_size=8)


def chain_of(sizes: list[tuple[int, int, int, int]], **more: Any) -> dict[str, Any]:
    stages = [
        {
            "forward_time": time,
            "backward_time": 2 * time,
            "output_size": out,
            "saved_size": saved,
            "name": f"layers.{i}",
        }
        | {"backward_workspace": work}
        for i, (time, out, saved, work) in enumerate(sizes)
    ]
    return {"schema": "remat.instance/1", "kind": "chain", "input_size": 2, "stages": stages} | more


def planned(instance: Any, share: float) -> remat.Result:
    kept = remat.solve(instance, algorithm="keep-all")
    found = remat.solve(instance, algorithm="rotor", budget=int(share * kept.peak_memory["memory"]))
    return kept if found.columns is None else found


def runs_by_hand(again: list[list[int]], length: int) -> list[str]:
    """The runs of checkpointing: forwards in segments save nothing, and the backward recomputes a segment when it
    reaches it."""
    inside = {stage for segment in again for stage in segment}
    runs = [("F" if stage in inside else "Fe") + str(stage + 1) for stage in range(length)] + ["loss"]
    for stage in range(length - 1, -1, -1):
        segment = next((segment for segment in again if segment[-1] == stage), [])
        runs += [f"Fe{other + 1}" for other in segment] + [f"B{stage + 1}"]
    return runs


def recomputed(format_: str, text: str, length: int) -> list[list[int]]:
    """Read the segments of an exported policy as its program does."""
    numbers = [int(number) for number in re.findall(r"(?:n-layers|num-layers|option = \")\D*(\d+)", text)]
    if format_ == "torch-checkpoint":
        space: dict[str, Any] = {}
        exec(re.search(r"^SEGMENTS = .*?\]  ", text, re.MULTILINE).group(), space)  # type: ignore[union-attr]
        return space["SEGMENTS"]  # type: ignore[no-any-return]
    if format_ == "torchtitan":
        every = {"none": 0, "full": 1}.get(re.search(r'mode = "(\w+)"', text).group(1), *numbers[:1] or [0])  # type: ignore[union-attr]
        return [[layer] for layer in range(length) if every and (layer + 1) % every == 0]
    if format_ == "megatron":
        if not numbers:
            return []
        if "uniform" in text:
            step = numbers[0]
            return [list(range(first, min(first + step, length))) for first in range(0, length, step)]
        return [[layer] for layer in range(numbers[0])]
    if format_ == "layer-ids":
        listed = re.search(r"layer_ids: \[(.*)\]", text)
        return [[int(number)] for number in listed.group(1).split(", ")] if listed else []
    count = int(re.findall(r"\[1, 1, (\d+)\]", text)[-1])
    return [[layer] for layer in range(count)]


@settings(max_examples=15, deadline=None)
@given(CHAINS, st.sampled_from([0.4, 0.6, 0.8, 1]), st.sampled_from(sorted(CHAIN_FORMATS)))
def test_a_policy_states_the_verified_peak_and_time_of_what_its_program_does(sizes, share, format_):
    instance = chain_of(sizes)
    result = planned(instance, share)
    exported = export_policy(examine(instance, result.to_dict()), format_)
    segments = recomputed(format_, exported.text, len(sizes))
    expected = remat.schedule_of(instance, runs_by_hand(segments, len(sizes)))
    assert (exported.peak, exported.makespan) == (expected.peak_memory["memory"], expected.makespan)
    more = "the policy needs more memory than the plan"
    assert (more in exported.notes) == (exported.peak > result.peak_memory["memory"])
    assert all(note in exported.text for note in exported.notes)
    if share == 1:
        assert exported.peak <= result.peak_memory["memory"]


@settings(max_examples=10, deadline=None)
@given(CHAINS, st.data())
def test_a_policy_that_is_planned_is_exported_as_it_is(sizes, data):
    length = len(sizes)
    instance = chain_of(sizes)
    again = sorted(data.draw(st.sets(st.integers(0, length - 1))))
    segments: list[list[int]] = []
    for stage in again:
        if segments and segments[-1][-1] == stage - 1 and data.draw(st.booleans()):
            segments[-1].append(stage)
        else:
            segments.append([stage])
    result = remat.schedule_of(instance, runs_by_hand(segments, length))
    plan = chain_plan(examine(instance, result.to_dict()))
    assert [list(segment) for segment in plan.closest.segments] == segments
    exported = export_policy(examine(instance, result.to_dict()), "torch-checkpoint")
    assert (exported.peak, exported.makespan) == (result.peak_memory["memory"], result.makespan)


def test_losses_name_reruns_and_copies():
    instance = chain_of([(1, 4, 12, 0)] * 12)
    exported = export_policy(examine(instance, planned(instance, 0.25).to_dict()), "torch-checkpoint")
    assert any(re.match(r"stages run forward up to [3-9] times in the plan", note) for note in exported.notes)
    memories = {"memories": [{"name": "device"}, {"name": "host"}], "processors": [{"name": "gpu", "memory": "device"}]}
    links = [("device", "host"), ("host", "device")]
    machine = memories | {"links": [{"source": one, "target": two, "bandwidth": 100} for one, two in links]}
    hosted = chain_of([(1, 4, 12, 0)] * 6, machine=machine)
    result = remat.solve(hosted, algorithm="offload-greedy", budget={"device": 60}, options={"bound": False})
    exported = export_policy(examine(hosted, result.to_dict()), "layer-ids")
    assert any("copies between memories are left out" in note for note in exported.notes)
    assert exported.peak > result.peak_memory["device"]


@pytest.mark.parametrize("rule", ["gpipe", "1f1b", "interleaved", "zb-v"])
@pytest.mark.parametrize("format_", sorted(PIPELINE_FORMATS))
def test_policies_of_pipelines_are_verified_in_their_order(rule, format_):
    orders = named(rule, 4, 8).to_document([f"gpu{index}" for index in range(4)])
    stages = orders["stages"]
    layer = {"forward_time": 1, "backward_time": 2, "saved_size": 3, "output_size": 1, "repeat": len(stages)}
    if rule == "zb-v":
        layer |= {"weight_time": 1}
    instance = pipeline(layers=[layer])
    kept = remat.verify(instance, {"schema": "remat.schedule/2", **orders})
    assert kept.ok
    for index, batches in ((0, None), (1, [0, 2, 5])):
        again = {"layers": [index + 1]} | ({} if batches is None else {"micro_batches": batches})
        stages[index]["recompute"] = [again]
    examined = examine(instance, {"schema": "remat.schedule/2", **orders})
    exported = export_policy(examined, format_)
    plan = examined.report
    if format_ == "flagscale":
        assert (exported.peak, exported.makespan) == (max(plan.peak_memory.values()), plan.makespan)
        assert "  - [1, 8, 1]" in exported.text
        assert "  - [1, 1, 1, 1, 0, 1, 1, 2, 0, 1, 1, 2, 0]" in exported.text
    else:
        assert exported.peak <= max(plan.peak_memory.values())
        assert exported.makespan >= plan.makespan
        assert (
            "recompute_layer_ids: [0, 1]" if format_ == "layer-ids" else "--recompute-num-layers 1"
        ) in exported.text


def test_other_instances_are_refused():
    graph = {"schema": "remat.instance/1", "kind": "dag", "tasks": [{"id": "a", "time": 1, "size": 1}]}
    done = examine(graph, remat.schedule_of(graph, ["a"]).to_dict())
    for format_, message in (("megatron", "takes chains"), ("torch-sac", "not a captured PyTorch step")):
        with pytest.raises(OptionError, match=message):
            export_policy(done, format_)
    instance = chain_of([(1, 1, 1, 0)])
    with pytest.raises(OptionError, match="torch-sac is for task graphs"):
        export_policy(examine(instance, planned(instance, 1).to_dict()), "torch-sac")
    parameters = chain_of([(1, 1, 1, 0)])
    parameters["stages"][0] |= {"parameter_size": 1}
    parameters["schema"] = "remat.instance/2"
    result = remat.solve(parameters)
    with pytest.raises(OptionError, match="without parameters"):
        export_policy(examine(parameters, result.to_dict()), "megatron")
    orders = named("1f1b", 4, 8).to_document([f"gpu{index}" for index in range(4)])
    with pytest.raises(OptionError, match="torchtitan has no policies for pipelines"):
        export_policy(examine(pipeline(), {"schema": "remat.schedule/2", **orders}), "torchtitan")


def test_policies_of_each_stage():
    assert Policy.each([1, 3]).runs(4) == runs_by_hand([[1], [3]], 4)
