"""Overlaps within the tolerance of an instant do not add up, for every kind of dependence between steps."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from tests.verifier.judges import Case, rules

REASONS = ("processor", "value", "write", "free", "room")
"""The reason why a step waits for the end of the previous one."""

TIMES = st.sampled_from((0.2e-9, 0.8e-9, 0.01))
OVERLAPS = st.sampled_from((0, 0, 0.3e-9, 0.8e-9))


def relay(reason, times):
    """Return steps of these times, sequential for `reason`, next to a concurrent step of one second.

    The tolerance of an instant depends on the makespan; here it is 1e-9.
    """
    count = len(times)
    machine = {
        "memories": [{"name": "near", "capacity": 3 if reason == "room" else 2 * count + 4}, {"name": "far"}],
        "processors": [
            {"name": "p", "memory": "near", "count": max(2, count)},
            {"name": "long", "memory": "far"},
        ],
    }
    tasks = [{"id": "long", "time": 1.0, "writes": []}]
    steps = [{"run": "long", "on": ["long"], "start": 0.0}]
    for k, time in enumerate(times):
        task = {"id": f"t{k}", "time": time, "writes": []}
        step = {"run": f"t{k}", "on": [f"p{k}" if reason != "processor" else "p0"]}
        if reason == "value":
            task |= {"reads": [f"v{k - 1}"] if k else [], "writes": [f"v{k}"]}
        elif reason == "write" or (reason == "free" and k % 2):
            task |= {"writes": ["v0"]}
        elif reason == "free":
            task |= {"reads": ["v0"]}
            step["drop"] = ["v0"]
        elif reason == "room":
            task |= {"workspace": 2}
        tasks.append(task)
        steps.append(step)
    values = {name: {"id": name, "size": 1} for task in tasks for name in task["writes"]}
    document = {"schema": "remat.instance/1", "kind": "dag", "machine": machine, "values": list(values.values())}
    return Case(document | {"tasks": tasks, "inputs": ["v0"] if reason == "free" else []}), steps


def judged(reason, times, starts):
    case, steps = relay(reason, times)
    for step, start in zip(steps[1:], starts, strict=True):
        step["start"] = start
    return case.verify(steps)


def lateness(times, starts):
    """Return the most by which a step is late if each waits for the one before it."""
    late = end = 0.0
    for time, start in zip(times, starts, strict=True):
        late = max(late, end - start)
        end = max(end, start) + time
    return late


@pytest.mark.parametrize("reason", REASONS)
def test_many_runs_at_one_instant_take_their_time(reason):
    few, many = [0.3e-9] * 4, [0.9e-9] * 40
    assert judged(reason, few, [0.0] * 4).ok
    found = rules(judged(reason, many, [0.0] * 40))
    assert {rule for _, rule in found} == {"time-hidden"}
    assert min(step for step, _ in found) == 3  # the third run is 1.8e-9 late
    # Long ones, each a little before the one before it ends.
    times, starts = [0.02] * 40, [k * (0.02 - 0.3e-9) for k in range(40)]
    assert {rule for _, rule in rules(judged(reason, times, starts))} == {"time-hidden"}
    assert judged(reason, times, [k * 0.02 for k in range(40)]).ok


@pytest.mark.parametrize("reason", REASONS)
@settings(max_examples=20, derandomize=True, database=None, deadline=None)
@given(st.lists(st.tuples(TIMES, OVERLAPS), min_size=2, max_size=12))
def test_what_is_accepted_is_late_by_no_more_than_the_tolerance(reason, drawn):
    times = [time for time, _ in drawn]
    starts, end = [], 0.0
    for time, overlap in drawn:
        starts.append(max(0.0, end - overlap))
        end = starts[-1] + time
    report = judged(reason, times, starts)
    late = lateness(times, starts)
    assert report.ok or late > 0.2e-9, report.violations
    assert not report.ok or late <= 1.001e-9
    for _, rule in rules(report):
        assert rule != "time-hidden" or late > 0.999e-9


@pytest.mark.parametrize("reason", REASONS)
def test_rounded_times_are_no_hidden_time(reason):
    """Sixty starts, each rounded to ten digits: now early, now late, and never by more than that."""
    times = [0.0123456789123 / (1 + k % 7) for k in range(60)]
    ends = list(itertools.accumulate(times))
    assert judged(reason, times, [round(start, 10) for start in (0.0, *ends[:-1])]).ok


def test_readers_do_not_wait_for_readers():
    """Two short runs at one instant read what a copy reads from that instant on."""
    case = Case(
        {
            "schema": "remat.instance/1",
            "kind": "dag",
            "machine": {
                "memories": [{"name": "near"}, {"name": "far"}],
                "processors": [{"name": "p", "memory": "near"}],
                "links": [{"source": "near", "target": "far", "bandwidth": None, "latency": 1.0}],
            },
            "values": [{"id": "v", "size": 1}],
            "inputs": ["v"],
            "tasks": [{"id": "t", "time": 0.6e-9, "reads": ["v"], "writes": []}],
            "outputs": [{"value": "v", "memory": "far"}],
        }
    )
    run, copy = {"run": "t", "start": 0.0}, {"copy": "v", "from": "near", "to": "far", "start": 0.0}
    assert case.verify([run, run, copy]).ok
    assert {rule for _, rule in rules(case.verify([run, run, run, copy]))} == {"time-hidden"}  # the third run waits


@pytest.mark.parametrize("longest", [10.5, 1e11])
def test_a_very_long_step_does_not_reorder_the_others(longest):
    """The copy frees its value when it ends, after the run beside it; next to the long run, all this is one instant."""
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "machine": {
            "memories": [{"name": "device"}, {"name": "host"}],
            "processors": [{"name": "gpu", "memory": "device"}],
            "links": [{"source": "device", "target": "host", "bandwidth": 1}],
        },
        "tasks": [
            {"id": "a", "time": 1.5, "size": 4},
            {"id": "b", "time": 1.5, "reads": ["a"], "size": 1},
            {"id": "long", "time": longest, "reads": ["b"], "size": 1},
        ],
        "outputs": ["long", {"value": "a", "memory": "host"}],
    }
    copy = {"copy": "a", "from": "device", "to": "host", "start": 1.5, "drop": True}
    steps = [{"run": "a", "start": 0.0}, copy, {"run": "b", "start": 1.5}, {"run": "long", "start": 3.0, "drop": ["b"]}]
    case = Case(document)
    report, other = case.verify(steps), case.judge(steps)
    assert report.ok
    assert other.ok
    assert report.peaks["host"].size == other.peaks["host"] == 4
    # A value that is freed before the run begins is missing at any tolerance.
    steps[2]["start"], steps[3]["start"] = 5.5, 7.0
    assert not case.verify(steps).ok
    assert not case.judge(steps).ok


def test_sums_of_floats_leave_no_negative_idle_time():
    """The busy time of these runs, added in another order, exceeds their makespan by a rounding."""
    draw = random.Random(17)
    forward, backward = ([draw.random() for _ in range(12)] for _ in range(2))
    step = remat.chain(forward_time=forward, backward_time=backward, output_size=1, saved_size=1, input_size=1)
    report = remat.solve(step, algorithm="keep-all").report
    assert report is not None
    assert report.busy["processor"] > report.makespan
    assert report.idle["processor"] == 0
    assert report.bubble["processor"] == 0
