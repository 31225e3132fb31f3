"""The values at a peak agree with an oracle that follows the steps by names, and with the verified figure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.plugin.proposal import Bound
from remat.report.text.peak_table import peak_table
from remat.report.views.residents import residents_at
from remat.solving.peak import SHARED, STATIC, Held
from remat.solving.result import Result
from remat.testing import strategies
from tests.oracles.holding import held_at

QUICK = settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])


def check(result: Result) -> None:
    peak = result.peak
    assert peak is not None
    assert peak.size == result.peak_memory[peak.memory] == sum(held.size for held in peak.held)
    assert peak.task == result.peak_step(peak.memory)
    assert [held.size for held in peak.held] == sorted((held.size for held in peak.held), reverse=True)
    values = {held.name: held for held in peak.held if held.made_by and held.name != STATIC}
    expected = {value: found for value, found in held_at(result, peak.step).items() if result.decisions[value].size}
    assert values.keys() == expected.keys()
    for value, (maker, readers) in expected.items():
        assert values[value].made_by == maker
        assert list(values[value].waits_for) == readers
        assert values[value].size == result.decisions[value].size
        assert values[value].since <= peak.time


def solved(instance: Any, algorithm: str, percent: int) -> list[Result]:
    plain = remat.solve(instance, algorithm="keep-all")
    if plain.report is None or len(plain.machine.memories) > 1 or len(plain.machine.processors) > 1:
        return []
    less = remat.solve(instance, algorithm=algorithm, budget=max(plain.peak_memory.values()) * percent // 100)
    return [result for result in (plain, less) if result.report is not None]


@QUICK
@given(strategies.chains(plain=True, exact=True), st.integers(50, 95))
def test_peaks_of_chains_are_the_sum_of_their_values(instance: Any, percent: int) -> None:
    for result in solved(instance, "rotor", percent):
        check(result)


def test_nothing_waits_for_a_run_after_it_is_gone() -> None:
    """Most backwards take no time, so runs with and without a value begin at one instant."""
    stage = {
        "forward_time": 0,
        "backward_time": 1,
        "output_size": 1,
        "saved_size": 4,
        "variants": [{"backward_time": 0}],
    }
    document = {
        "schema": "remat.instance/1",
        "kind": "chain",
        "units": {"time": "ms"},
        "input_size": 0,
        "stages": [stage | {"repeat": 4}],
        "loss": {"time": 1, "workspace": 3},
    }
    for result in solved(document, "rotor", 50):
        check(result)


@QUICK
@given(strategies.dags(plain=True, exact=True), st.integers(60, 95))
def test_peaks_of_graphs_are_the_sum_of_their_values(instance: Any, percent: int) -> None:
    for result in solved(instance, "linearized-greedy", percent):
        check(result)


@pytest.mark.parametrize("example", ["uniform_p4", "lecture_l5", "siamese"])
def test_every_memory_agrees_with_the_residents_of_the_views(example: str) -> None:
    """Peak contents equal the residents of the views: pipeline devices, states, inputs and workspaces."""
    algorithm = {"uniform_p4": "1f1b", "lecture_l5": "keep-all", "siamese": "keep-all"}[example]
    result = remat.solve(remat.example(example), algorithm=algorithm)
    assert result.report is not None
    assert result.columns is not None
    for index, memory in enumerate(result.machine.memories):
        peak = result.peak_of(memory.name)
        assert peak is not None
        listed = residents_at(result.graph, result.machine, result.columns, result.report, memory=index, step=peak.step)
        sizes = {one.name: one.size for one in listed if not one.name.startswith("workspace")}
        assert {one.name: one.size for one in peak.held if one.made_by} == sizes
        assert SHARED not in sizes


def test_the_peak_of_a_pipeline_is_that_of_the_fullest_device() -> None:
    result = remat.solve(remat.example("uniform_p4"), algorithm="1f1b")
    assert result.peak is not None
    assert result.peak.size == max(result.peak_memory.values())


def test_copies_make_values_and_wait_for_them() -> None:
    chain = remat.chain(
        forward_time=[3, 1, 2, 4],
        backward_time=2,
        output_size=[40, 30, 20, 10],
        saved_size=5,
        input_size=20,
        machine=remat.device(150, link=10),
        time_unit="unit",
        size_unit="unit",
    )
    result = remat.solve(chain, algorithm="offload-greedy")
    peak, host = result.peak, result.peak_of("host")
    assert peak is not None
    assert host is not None
    assert {held.made_by for held in host.held} == {"copy from device"}
    assert {held.waits_for for held in host.held} == {("copy to device",)}
    assert sum(held.size for held in peak.held) == peak.size


def test_the_table_names_sizes_producers_and_readers() -> None:
    made = generate("chain", "transformer", layers=2, hidden=64, heads=4, sequence=32, vocabulary=100, batch=4)
    result = remat.solve(made, algorithm="keep-all")
    assert result.peak is not None
    text = peak_table(result.peak, result.units, most=4)
    assert text.splitlines()[0].startswith("peak of memory: ")
    assert f"the largest 4 of {len(result.peak.held)}:" in text
    assert "static memory" in text
    assert Held(name="a", size=1).to_dict()["waits_for"] == []


def test_without_a_schedule_there_is_no_peak() -> None:
    result = remat.solve(remat.chain(forward_time=[1], backward_time=1, output_size=4, input_size=4), budget=1)
    assert (result.peak, result.shortfall is None) == (None, False)


def test_a_bound_of_a_class_is_not_shown_beside_a_schedule_that_beats_it() -> None:
    """The schedule is none of that class, so the bound says nothing about it."""
    chain = remat.chain(forward_time=[2, 3], backward_time=1, output_size=4, input_size=4)
    result = replace(remat.solve(chain, algorithm="recompute-all"), lower_bound=1)
    assert result.makespan is not None
    bounds = [Bound(result.makespan + more, f"class {more}", "a test") for more in (-1, 0, 1)]
    said = " ".join(replace(result, bounds=tuple(bounds)).summary().split())
    assert ("class -1 (a test)" in said, "class 0 (a test)" in said, "class 1 (a test)" in said) == (True, True, False)


@pytest.mark.parametrize(("names", "module"), [(None, "stage 3"), (["a", "b", "c", "d"], "c")])
def test_the_stage_of_a_peak_is_named_or_numbered(names: list[str] | None, module: str) -> None:
    sizes = {"output_size": [40, 30, 20, 10], "saved_size": 5, "input_size": 20}
    columns = {"forward_time": [3, 1, 2, 4], "backward_time": 2, **sizes, "names": names}
    result = remat.solve(remat.chain(**columns), algorithm="keep-all")
    assert (result.peak.task, result.peak.stage, result.peak_module("memory")) == ("B3", 2, module)
    small = {key: column for key, column in columns.items() if key != "names"} | {"output_size": 1, "saved_size": 1}
    joined = remat.solve(remat.join([small, columns]), algorithm="keep-all")
    task = joined.peak.task
    assert task.startswith("B2.")
    assert joined.peak.stage == int(task[3:]) - 1
    assert joined.peak_module("memory") == (names[joined.peak.stage] if names else f"stage {task[3:]}")


def test_peaks_of_pipelines_name_the_stage_of_the_plan_and_the_layer() -> None:
    sizes = {"output_size": 1, "saved_size": 4, "devices": 2, "micro_batches": 3}
    result = remat.solve(remat.pipeline(forward_time=[2] * 4, backward_time=4, **sizes), algorithm="1f1b")
    for device, name in enumerate(result.peak_memory):
        peak = result.peak_of(name)
        layer = int(peak.task[1:].split(".")[0])
        assert (peak.stage, result.peak_module(name)) == (device, f"layer {layer}")


def test_other_tasks_have_no_stage() -> None:
    loss = remat.chain(forward_time=[1], backward_time=1, output_size=1, loss_time=1, loss_workspace=99)
    for instance in (loss, remat.dag([(0, 1)], time=1, size=3, names=["a1", "a2"])):
        result = remat.solve(instance, algorithm="keep-all")
        assert (result.peak.stage, result.peak_module("memory")) == (None, "")
