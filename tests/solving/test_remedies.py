"""Remedies of small budgets: only bytes of the need are said to leave, and no batch that fits is excluded."""

from __future__ import annotations

from typing import Any

import remat
from remat.solving.remedies import Remedy


def remedies_of(step: Any, budget: Any, algorithm: str) -> dict[str, Remedy]:
    found = remat.solve(step, algorithm=algorithm, budget=budget).shortfall
    assert found is not None
    return {remedy.what: remedy for remedy in found.remedies}


def hosted(share: float = 1, **more: int) -> Any:
    """Five layers on a device with a host, with a share of their batch; the last backward sets the need."""
    size = int(10 * share)
    stage = {"forward_time": 1, "backward_time": 2, "update_time": 1, "output_size": size, "parameter_size": 12, **more}
    return {
        "schema": "remat.instance/3",
        "kind": "chain",
        "input_size": size,
        "stages": [*[stage] * 4, {**stage, "backward_workspace": int(100 * share)}],
        "machine": {
            "memories": [{"name": "device"}, {"name": "host"}],
            "processors": [{"name": "gpu", "memory": "device"}],
            "links": [{"source": a, "target": b, "bandwidth": 5} for a, b in (("device", "host"), ("host", "device"))],
        },
    }  # fmt: skip


def test_a_batch_that_fits_with_parameters_at_the_host_is_not_excluded() -> None:
    """The parameters of other layers, 48 bytes, may leave for the host while the last backward runs."""
    budget = {"device": 75}
    (what,) = (name for name in remedies_of(hosted(), budget, "capuchin") if "batch" in name)
    share = int(what.removeprefix("a batch of at most ").split(" %")[0])
    fits = [
        percent
        for percent in range(10, 50, 10)
        if remat.solve(hosted(percent / 100), algorithm="capuchin", budget=budget).report is not None
    ]
    assert fits == [10, 20, 30]
    assert 30 <= share < 40


def test_only_bytes_of_the_need_leave_for_the_host() -> None:
    """The need of a backward contains no optimizer states: nothing is gained by placing them elsewhere."""
    found = remat.solve(hosted(optimizer_size=5), algorithm="weight-offload", budget={"device": 90}).shortfall
    assert found is not None
    assert found.proved
    assert found.split["optimizer states"] == 25
    assert {part.what for part in found.parts} == {"read", "written", "workspace"}
    assert not any("host" in remedy.what for remedy in found.remedies)


def test_states_that_leave_uncover_the_need_of_the_largest_task() -> None:
    step = hosted(optimizer_size=80)
    del step["machine"]["links"], step["machine"]["memories"][1]
    needs = {what: remedy.need for what, remedy in remedies_of(step, 200, "weight-offload").items()}
    assert needs["gradients and optimizer states at the host"] == 164
    assert needs["parameters at the host, too"] == 164  # the last backward


def test_ranks_that_share_states_are_not_told_to_share_them() -> None:
    step = hosted(optimizer_size=80) | {"sharding": {"data": 4, "zero": 2}}
    del step["machine"]
    for stage in step["stages"]:
        stage["backward_workspace"] = 0
    found = remat.solve(step, algorithm="zero", budget=220).shortfall
    assert found is not None
    assert found.split == {"parameters": 60, "gradients": 15, "optimizer states": 100}
    (shared,) = (remedy for remedy in found.remedies if "ZeRO" in remedy.what)
    assert shared.what.startswith("4 ranks")
    assert shared.need == found.need - 48 + 12  # the parameters of four layers; the task needs those of the fifth


def pipeline(parameter_size: tuple[int, ...] = (0, 8, 0, 0)) -> Any:
    return remat.pipeline(
        forward_time=1,
        backward_time=2,
        output_size=[2] * 4,
        parameter_size=list(parameter_size),
        devices=4,
        micro_batches=4,
        time_unit="unit",
        size_unit="unit",
    )


def test_a_smaller_batch_does_not_shrink_the_parameters_of_a_task() -> None:
    """The parameters of one layer and their gradients, 16 bytes, exceed a device, and an equal share, 4, does not."""
    found = remedies_of(pipeline(), 12, "1f1b")
    assert not found["a smaller batch"].helps
    assert found["a smaller batch"].need == 16


def test_capacities_of_several_memories_are_theirs() -> None:
    for step, algorithm, own in ((hosted(), "capuchin", "its"), (pipeline((8,) * 4), "1f1b", "their")):
        words = " ".join(remat.solve(step, algorithm=algorithm, budget=16).summary().split())
        assert f"more than {own} capacity" in words


def test_a_budget_is_suggested_only_if_the_algorithm_finds_a_schedule_there() -> None:
    """At the peak without recomputation, the host is too small for an algorithm that always offloads."""
    step = hosted(parameter_size=0, update_time=0, saved_size=9)
    step["machine"]["memories"][1]["capacity"] = 40
    for algorithm in ("vdnn-all", "keep-all"):
        found = remat.solve(step, algorithm=algorithm, budget={"device": 1}).shortfall
        assert found is not None
        assert bool(found.budget) == (algorithm == "keep-all")
        if found.budget:
            assert remat.solve(step, algorithm=algorithm, budget=found.budget).report is not None


def test_no_budget_is_suggested_that_only_an_unsupported_algorithm_needs() -> None:
    """The reference of percentages may ignore the ratio of a value; no algorithm for ranks does."""
    step = hosted(optimizer_size=8) | {"sharding": {"data": 4, "zero": 2}}
    step["machine"]["links"].append({"source": "device", "target": "device", "ratio": 0.5, "codec": 3})
    for stage in step["stages"]:
        stage["output_ratio"] = 0.5
    result = remat.solve(step, budget={"device": 8})
    assert result.shortfall is not None
    assert result.shortfall.budget == {}
    assert remat.solve(step, budget={"device": 10_000}).report is None


def test_values_that_are_all_named_are_no_examples() -> None:
    """And a share that rounds to zero is below 0.1 %."""
    tree = {"schema": "remat.instance/2", "kind": "tree", "parent": [-1, 0, 0, 1, 2]}
    tree |= {"output_size": [0, 1, 10_000, 10_005, 10_000]}
    words = remat.solve(tree, budget=9).summary()
    assert "1 B (< 0.1 %) other values that have to be there: v1 (1 B)" in " ".join(words.split())


def test_what_is_written_over_what_is_read_is_said_so() -> None:
    """An output of 7 bytes over an input of 4 adds 3."""
    task = {"id": "a", "time": 1, "reads": ["i"], "writes": ["o"], "in_place": True}
    sizes = [{"id": "i", "size": 4}, {"id": "o", "size": 7}]
    graph = {"schema": "remat.instance/2", "kind": "dag", "tasks": [task], "values": sizes}
    result = remat.solve(graph | {"inputs": ["i"], "outputs": ["o"]}, algorithm="keep-all", budget=1)
    assert "3 B (42.9 %) what task a writes: o (7 B), partly in place of what it reads" in result.summary()
