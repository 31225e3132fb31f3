"""Processors slower than the first one: exact times in placement, the verifier and the oracles."""

from dataclasses import replace

import numpy as np
import pytest

import remat
from remat.graph.bounds import makespan_bound
from remat.placement import place
from remat.placement.list_scheduling import place_general
from remat.placement.place import _one_resource
from remat.placement.sequential import place_sequential
from remat.plugin import registry
from remat.verifier import check
from tests.oracles import placer
from tests.verifier.judges import Case, same_figures


def case_of(speed, *times, parallel=None):
    tasks = [{"id": f"t{i}", "time": time, "writes": []} for i, time in enumerate(times)]
    if parallel:
        tasks[0]["parallel"] = parallel
    return Case(
        {
            "schema": "remat.instance/2",
            "kind": "dag",
            "units": {"time": "unit", "memory": "unit"},
            "machine": {
                "memories": [{"name": "device"}, {"name": "host"}],
                "processors": [
                    {"name": "gpu", "memory": "device"},
                    {"name": "aux", "memory": "device", "speed": speed},
                    {"name": "cpu", "memory": "host", "speed": speed},
                ],
            },
            "tasks": tasks,
        }
    )


@pytest.mark.parametrize(
    ("time", "speed", "expected"),
    [
        (3, 0.5, 6),
        (3, 0.1, 30),  # 3/0.1 is 30.0 in float64
        (6, 0.75, 8),
        (3, 0.7, 3 / 0.7),
        (2**52, 0.25, 2.0**54),  # whole, but beyond what float64 tells apart
        (2**60 + 1, 1, 2**60 + 1),
        (3.0, 0.5, 6.0),
        (0, 0.3, 0),
    ],
)
def test_a_run_takes_its_time_divided_by_the_speed(time, speed, expected):
    case = case_of(speed, time)
    steps = [{"run": "t0", "on": ["cpu"]}]
    assert placer.place(case.document, steps) == [0]
    placed = steps[0] | {"start": place(case.graph, case.machine, case.columns(steps)).start[0].item()}
    report, verdict = case.verify([placed]), case.judge([placed])
    assert report.ok
    assert (report.makespan, type(report.makespan)) == (expected, type(expected))
    assert (verdict.makespan, type(verdict.makespan)) == (expected, type(expected))
    assert report.busy["cpu"] == expected
    assert report.idle["gpu"] == expected
    assert report.recompute_time == verdict.recompute_time == 0  # a slow run is no recomputation


def test_runs_beside_each_other_at_their_own_speeds():
    case = case_of(0.25, 8, 2, 3)
    steps = [{"run": "t1", "on": ["cpu"]}, {"run": "t0"}, {"run": "t2", "on": ["cpu"]}]
    starts = place(case.graph, case.machine, case.columns(steps)).start
    assert starts.dtype == np.int64
    assert starts.tolist() == placer.place(case.document, steps) == [0, 0, 8]
    schedule = [step | {"start": start} for step, start in zip(steps, starts.tolist(), strict=True)]
    same_figures(case.verify(schedule), case.judge(schedule))
    report = case.verify(schedule)
    assert (report.makespan, report.busy["cpu"], report.busy["gpu"], report.run_time) == (20, 20, 8, 13)
    # One step earlier, the processor is still busy.
    early = [*schedule[:2], schedule[2] | {"start": 7}]
    assert [violation.rule for violation in case.verify(early).violations] == ["resource-busy"]
    assert case.judge(early).rules == {"resource-busy"}


def test_several_processors_go_at_the_pace_of_the_slowest():
    case = case_of(0.5, 12, parallel={"max": 2})
    steps = [{"run": "t0", "on": ["gpu", "aux"], "start": 0}]
    report = case.verify(steps)
    assert report.makespan == case.judge(steps).makespan == 12  # 12 / 2 / 0.5
    assert makespan_bound(case.graph, case.machine) == 6  # two gpus at most; all three: 12 / (1 + 0.5 + 0.5)


def test_the_bound_divides_by_the_sum_of_speeds():
    case = case_of(0.25, 4, 4, 4)
    assert makespan_bound(case.graph, case.machine) == 8  # 12 / (1 + 0.25 + 0.25)


@pytest.mark.parametrize("times", [(3, 5, 8), (1, 1), (2.5, 1), (2**53, 1)])
def test_the_short_cut_knows_speeds(times):
    """No document has a slow first processor, but a machine may."""
    case = case_of(0.5, *times)
    first, *others = case.machine.processors
    for speed in (0.5, 0.3):
        machine = replace(case.machine, processors=(replace(first, speed=speed), *others))
        columns = case.columns([{"run": f"t{i}"} for i in range(len(times))])
        assert _one_resource(machine, columns)
        quick = place_sequential(case.graph, machine, columns).start
        general = place_general(case.graph, machine, columns).start
        assert np.array_equal(quick, general)
        assert quick.dtype == general.dtype
        assert check(case.graph, machine, columns.placed(quick)).ok


SLOWER = {
    "memories": [{"name": "memory"}],
    "processors": [
        {"name": f"p{i}", "memory": "memory"} | ({"speed": s} if i else {}) for i, s in enumerate((1, 0.3, 0.5))
    ],
}
TREE = {
    "schema": "remat.instance/2",
    "kind": "tree",
    "units": {"time": "unit", "memory": "unit"},
    "machine": SLOWER,
    "parent": [-1, 0, 0, 1, 1, 2, 2, 3, 3],
    "output_size": [1, 2, 3, 4, 2, 3, 1, 2, 2],
    "time": [3, 4, 5, 6, 2, 3, 4, 5, 1],
    "parallel": {"max": 3, "alpha": 0.8},
}


def test_algorithms_for_several_processors_take_slower_ones():
    """Their schedules are verified, their claims and bounds hold; that processors differ they do not know."""
    used = set()
    for algorithm in registry.algorithms("tree", available=True):
        try:
            result = remat.solve(TREE, algorithm=algorithm.name, budget=14, time_limit=1)
        except remat.OptionError:
            continue
        if result.makespan is not None:
            assert result.lower_bound <= result.makespan
            used.update(name for step in result.to_dict()["steps"] for name in step.get("on", ()))
    assert used == {"p0", "p1", "p2"}


def test_show_names_speeds():
    facts = remat.show(TREE)
    assert [processor.speed for processor in facts.machine.processors] == [1, 0.5, 0.3]
    assert facts.machine.to_document()["processors"][2] == {"name": "p1", "memory": "memory", "speed": 0.3}
