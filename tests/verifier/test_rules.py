"""Each rule of the schedule format on schedules worked by hand."""

import numpy as np
import pytest

from remat.graph.machine import Machine
from remat.schedule.steps import StepBuilder
from remat.verifier import Violation, check
from remat.verifier.findings import MOST_VIOLATIONS
from remat.verifier.timeline import build_timeline
from tests.verifier.judges import Case, rules

DOCUMENT = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "machine": {
        "memories": [{"name": "device", "capacity": 20}, {"name": "host", "capacity": 30}, {"name": "disk"}],
        "processors": [
            {"name": "gpu", "memory": "device"},
            {"name": "aux", "memory": "device"},
            {"name": "cpu", "memory": "host"},
        ],
        "links": [
            {"source": "device", "target": "host", "bandwidth": 2, "channel": "d2h"},
            {"source": "host", "target": "device", "bandwidth": 2, "latency": 1},
            {"source": "device", "target": "disk", "bandwidth": 2},
        ],
    },
    "values": [{"id": name, "size": size} for name, size in {"i": 5, "u": 4, "v": 3, "w": 2, "z": 0}.items()],
    "tasks": [
        {"id": "a", "time": 2, "writes": ["u"]},
        {"id": "b", "time": 3, "reads": ["u"], "writes": ["v"], "workspace": 1, "once": True},
        {"id": "c", "time": 1, "reads": ["u", "v"], "writes": ["w"], "recomputable": False},
        {"id": "wait", "time": 2, "writes": [], "required": False},
        {"id": "flash", "time": 0, "writes": [], "workspace": 6, "required": False},
        {"id": "many", "time": 8, "writes": [], "required": False, "parallel": {"max": 2}},
        {"id": "turn", "time": 2, "reads": ["u"], "writes": ["u"], "required": False},
        {"id": "slide", "time": 2, "reads": ["u"], "writes": ["v"], "required": False, "in_place": True},
        {"id": "nothing", "time": 1, "writes": ["z"], "required": False},
        {"id": "reads nothing", "time": 1, "reads": ["z"], "writes": [], "required": False},
    ],
    "inputs": ["i"],
    "pinned_inputs": ["i"],
    "outputs": ["w"],
}
CASE = Case(DOCUMENT)


def run(task, start, **more):
    return {"run": task, "start": start} | more


def out(value, start, **more):
    return {"copy": value, "from": "device", "to": "host", "start": start} | more


def back(value, start, **more):
    return {"copy": value, "from": "host", "to": "device", "start": start} | more


def drop(value, start, memory="device"):
    return {"drop": [value], "memory": memory, "start": start}


BASE = [run("a", 0), run("b", 2), run("c", 5)]


def test_the_figures_of_a_valid_schedule():
    report = CASE.verify([*BASE, out("u", 2), drop("u", 6)])
    assert report.ok
    assert report.violations == ()
    assert report.makespan == 6
    assert type(report.makespan) is int
    # i, u and v; b's workspace while it runs, and w while c runs.
    assert report.peak_memory == {"device": 14, "host": 4, "disk": 0}
    assert {name: peak.step for name, peak in report.peaks.items()} == {"device": 2, "host": 3, "disk": None}
    assert report.run_time == 6
    assert report.recompute_time == 0
    assert report.transferred == {"device->host": 4, "host->device": 0, "device->disk": 0}
    assert report.busy["gpu"] == 6
    assert report.idle["gpu"] == 0
    assert report.idle["aux"] == 6
    assert report.busy["d2h"] == 2
    assert report.overlap["d2h"] == 2
    profile = report.profiles["device"]
    assert profile.time.tolist() == [0, 0, 2, 5, 5, 6]
    assert profile.size.tolist() == [5, 9, 13, 12, 14, 10]
    assert CASE.verify([*BASE, run("a", 6)]).recompute_time == 2


CASES = {
    "unknown task": ([run("nobody", 6)], {(3, "unknown-task")}),
    "unknown value, copied": ([out("q", 6)], {(3, "unknown-value")}),
    "unknown value, dropped": ([drop("q", 6)], {(3, "unknown-value")}),
    "unknown value, dropped by a run": ([run("turn", 6, drop=["q"])], {(3, "unknown-value")}),
    "unknown memory": ([drop("u", 6, "moon")], {(3, "unknown-memory")}),
    "unknown processor": ([run("wait", 6, on=["tpu"])], {(3, "unknown-processor")}),
    "no such link": ([{"copy": "u", "from": "disk", "to": "host", "start": 6}], {(3, "unknown-link")}),
    "drops a stranger": ([run("wait", 6, drop=["u"])], {(3, "bad-step")}),
    "drops twice": ([run("turn", 6, drop=["u", "u"])], {(3, "bad-step")}),
    "several processors, plain task": ([run("wait", 6, on=["gpu", "aux"])], {(3, "bad-step")}),
    "several processors, parallel task": ([run("many", 6, on=["gpu", "aux"])], set()),
    "processors of two memories": ([run("many", 6, on=["gpu", "cpu"])], {(3, "bad-step")}),
    "one processor twice": ([run("many", 6, on=["gpu", "gpu"])], {(3, "bad-step")}),
    "overlap": ([run("wait", 1)], {(1, "resource-busy"), (3, "resource-busy")}),
    "overlap beyond a short step": (
        [run("many", 6), run("flash", 7), run("wait", 8)],
        {(4, "resource-busy"), (5, "resource-busy")},
    ),
    "on another processor": ([run("wait", 1, on=["aux"])], set()),
    "a short step inside": ([run("flash", 3)], {(3, "resource-busy")}),
    "a short step at the boundary, listed too late": ([run("flash", 2)], {(3, "resource-busy")}),
    "a short step at the end": ([run("flash", 6)], set()),
    "one channel": ([out("u", 6), out("v", 7)], {(4, "resource-busy")}),
    "full duplex": ([out("u", 6), back("u", 8), out("v", 9)], set()),
    "read of nothing": ([drop("u", 6), run("turn", 6)], {(4, "read-missing")}),
    "read elsewhere": ([run("turn", 6, on=["cpu"])], {(3, "read-missing")}),
    "copy of nothing": ([back("u", 6)], {(3, "read-missing")}),
    "read while it is written afresh": ([run("a", 6), out("u", 7)], {(4, "value-busy")}),
    "written while it is read": ([out("u", 6), run("a", 7)], {(4, "value-busy")}),
    "written twice at once": ([drop("v", 6), run("a", 6), run("a", 7, on=["aux"])], {(5, "value-busy")}),
    "dropped while it is written": ([run("a", 6), drop("u", 7)], {(4, "value-busy")}),
    "dropped while it is read": ([out("u", 6), drop("u", 7)], {(4, "value-busy")}),
    "moved away while it is read": ([run("turn", 6), out("u", 6, drop=True, to="disk")], {(4, "value-busy")}),
    "moved away as the reader ends": ([out("u", 4, drop=True)], set()),
    "its own new copy": ([run("turn", 6)], set()),
    "drop of nothing": ([drop("w", 2)], {(3, "free-missing")}),
    "dropped twice": ([drop("u", 6), drop("u", 6)], {(4, "free-missing")}),
    "dropped by two that end together": (
        [run("turn", 6, drop=["u"]), drop("u", 8)],
        {(4, "free-missing")},
    ),
    "all of it as a part": ([out("u", 6, bytes=4, drop=True)], {(3, "bad-bytes")}),
    "no part of it": ([out("u", 6, bytes=0, drop=True)], {(3, "bad-bytes")}),
    "a part that stays": ([out("u", 6, bytes=2)], {(3, "bad-bytes")}),
    "more than the whole": ([out("u", 6), out("u", 8, bytes=2, drop=True)], {(4, "bad-bytes")}),
    "parts that come together": (
        [out("u", 6, bytes=3, drop=True), out("u", 8, bytes=1, drop=True), back("u", 9, drop=True), run("turn", 12)],
        set(),
    ),
    "a part is not the whole": ([out("u", 6, bytes=3, drop=True), run("turn", 8)], {(4, "read-missing")}),
    "two moves end together and take more than there is": (
        [run("wait", 6), out("u", 6, bytes=3, drop=True), out("u", 6, to="disk", bytes=3, drop=True)],
        {(5, "free-missing")},
    ),
    "a move ends with the move of all of it": (
        [out("u", 6, drop=True), out("u", 7, to="disk", bytes=2, drop=True)],
        {(4, "free-missing")},
    ),
    "pinned": ([drop("i", 6)], {(3, "pinned-input")}),
    "pinned, in part": ([out("i", 6, bytes=1, drop=True)], {(3, "pinned-input")}),
    "a copy of a pinned input": ([out("i", 6), drop("i", 9, "host")], set()),
    "once": ([run("b", 6)], {(3, "once-repeated")}),
    "not recomputable": ([run("c", 6)], {(3, "not-recomputable")}),
    "output dropped": ([drop("w", 6)], {(None, "output-missing")}),
    "output moved in part": ([out("w", 6, bytes=1, drop=True)], {(None, "output-missing")}),
    "output moved away": ([out("w", 6, drop=True)], {(None, "output-missing")}),
    "capacity": ([out("i", 6), out("u", 9), back("u", 12), back("i", 15)], set()),
    "over capacity": ([run("a", 6), run("turn", 8), run("flash", 9, on=["aux"])], {(5, "capacity")}),
    "nothing is something": ([run("reads nothing", 6)], {(3, "read-missing")}),
    "nothing was made": ([run("nothing", 6), run("reads nothing", 7), drop("z", 8)], set()),
    "nothing is gone": ([run("nothing", 6), drop("z", 7), drop("z", 7)], {(5, "free-missing")}),
}


@pytest.mark.parametrize("name", CASES)
def test_one_more_step_breaks_the_expected_rules(name):
    more, expected = CASES[name]
    assert rules(CASE.verify([*BASE, *more])) == expected


def test_required_tasks_and_outputs():
    assert rules(CASE.verify(BASE[:1])) == {(None, "required-missing"), (None, "output-missing")}
    report = CASE.verify([])
    assert report.makespan == 0
    assert [v.rule for v in report.violations].count("required-missing") == 3


def test_time_counts_once_in_the_overlap_however_many_processors_work():
    runs = [run("many", 6), run("wait", 7, on=["aux"]), run("wait", 10, on=["aux"])]
    report = CASE.verify([*BASE, *runs, out("u", 6), out("w", 11), out("i", 13)])
    assert report.ok
    # The last copy goes on for a unit and a half after the last run.
    assert report.overlap["d2h"] == 2 + 1 + 1


def test_capacity_says_what_and_where():
    case = Case(DOCUMENT | {"static_memory": 7})
    report = case.verify(BASE)
    assert [str(violation) for violation in report.violations] == ["step 2: capacity: device would hold 21 of 20 units"]
    report = Case(DOCUMENT | {"static_memory": 16}).verify(BASE)
    assert report.violations[-1] == Violation(None, "capacity", "device starts with 21 of 20 units")
    # Steps that only give back are not to blame.
    assert [violation.step for violation in report.violations] == [0, 1, 2, None]


def test_a_missing_drop_is_an_overrun():
    case = Case(DOCUMENT | {"static_memory": 4})
    freeing = [*BASE[:2], run("c", 5, drop=["u"]), run("flash", 6)]
    assert case.verify(freeing).ok
    assert rules(case.verify([*BASE, run("flash", 6)])) == {(3, "capacity")}


def test_short_steps_use_memory_too():
    # c ends and frees before the short step takes its 6 bytes.
    report = CASE.verify([*BASE[:2], run("c", 5, drop=["u", "v"]), run("flash", 6)])
    assert report.ok
    assert report.peaks["device"].size == 14
    early = CASE.verify([run("flash", 0), *BASE])
    assert early.ok
    assert early.profiles["device"].size.tolist()[:3] == [5, 11, 5]


def test_order_at_one_instant():
    late = [*BASE, out("u", 6), run("a", 8), drop("u", 8)]
    assert rules(CASE.verify(late)) == {(5, "value-busy")}
    assert CASE.verify([*BASE, out("u", 6), drop("u", 8), run("a", 8)]).ok


def test_old_and_new_copy_coexist():
    assert CASE.verify([*BASE, run("a", 6)]).peaks["device"].size == 14 + 4
    # A copy onto a resident value is a new copy, too.
    host = CASE.verify([*BASE, out("u", 6), out("u", 8)])
    assert host.peaks["host"].size == 8
    assert host.profiles["host"].size[-1] == 4


def test_in_place_runs_reuse_what_they_drop():
    reused = CASE.verify([*BASE, run("slide", 6, drop=["u"])])
    assert reused.ok
    assert reused.peaks["device"].size == 14
    assert reused.profiles["device"].size[-1] == 5 + 3 + 2
    assert CASE.verify([*BASE, run("slide", 6)]).peaks["device"].size == 14 + 3


def test_parallel_runs_are_faster_but_no_less_work():
    report = CASE.verify([*BASE, run("many", 6, on=["gpu", "aux"])])
    assert report.ok
    assert report.makespan == 10
    assert report.busy == {"gpu": 10, "aux": 4, "cpu": 0, "d2h": 0, "host->device": 0, "device->disk": 0}
    assert report.run_time == 14
    assert report.recompute_time == 8


def test_float_times_within_the_tolerance_are_one_instant():
    tasks = [task | {"time": task["time"] * 0.1} for task in DOCUMENT["tasks"]]
    case = Case(DOCUMENT | {"tasks": tasks})
    steps = [run("a", 0), run("b", 0.2), run("c", 0.2 + 0.3 - 1e-11)]
    assert case.verify(steps).ok
    assert case.verify(steps).recompute_time == 0
    steps[2]["start"] -= 1e-8
    assert {rule for _, rule in rules(case.verify(steps))} == {"resource-busy", "read-missing"}


def test_large_integers_are_exact():
    tasks = [task | {"time": task["time"] * 10**12} for task in DOCUMENT["tasks"]]
    case = Case(DOCUMENT | {"tasks": tasks})
    assert case.verify([run("a", 0), run("b", 2 * 10**12), run("c", 5 * 10**12)]).ok
    assert not case.verify([run("a", 0), run("b", 2 * 10**12 - 1), run("c", 5 * 10**12)]).ok


def test_integers_that_add_up_beyond_64_bits_become_floats():
    tasks = [task | {"time": task["time"] * 2**57} for task in DOCUMENT["tasks"]]
    case = Case(DOCUMENT | {"tasks": tasks})
    assert case.graph.exact_times
    runs = [run("many", (6 + 8 * i) * 2.0**57) for i in range(5)]
    report = case.verify([run("a", 0), run("b", 2**58), run("c", 5 * 2.0**57), *runs])
    assert report.ok
    assert report.makespan == 46 * 2.0**57
    assert report.run_time == 46 * 2**57 > 2**62


def test_close_times_do_not_chain_into_one_instant():
    # Three steps of 0.7 tolerances each: the third begins 1.4 tolerances after the first.
    start = np.array([0.0, 0.7e-9, 1.4e-9, 0.5])
    timeline = build_timeline(start, np.array([0.7e-9, 0.7e-9, 0.7e-9, 0.5]))
    assert timeline.step_at.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    # The second reaches into the next instant, so its end comes right before the start of the third.
    assert timeline.release_position[1] == timeline.free_position[1] - 1 == timeline.start_position[2] - 2
    # At one instant they would begin as they are listed.
    timeline = build_timeline(start[[0, 2, 1, 3]], np.array([0.7e-9, 0.7e-9, 0.7e-9, 0.5]))
    assert timeline.step_at.tolist() == [0, 0, 0, 2, 2, 2, 1, 1, 1, 3, 3, 3]


def test_indices_beyond_the_instance_are_unknown_names():
    builder = StepBuilder()
    builder.run(99)
    builder.run(-7)
    builder.copy(99, 0, 1)
    builder.copy(1, 0, 7)
    builder.drop([1], 9)
    builder.drop([99])
    builder.run(3, on=[5])
    builder.copy(1, 0, 1, drop=True, amount=1)
    steps = builder.build(start=np.zeros(8, dtype=np.int64))
    steps.kind[7] = 9
    found = rules(check(CASE.graph, CASE.machine, steps))
    assert {(step, rule) for step, rule in found if step is not None} == {
        (0, "unknown-task"),
        (1, "unknown-task"),
        (2, "unknown-value"),
        (3, "unknown-memory"),
        (4, "unknown-memory"),
        (5, "unknown-value"),
        (6, "unknown-processor"),
        (7, "bad-step"),
    }


def test_a_copy_drops_only_its_own_value():
    builder = StepBuilder()
    builder.copy(0, 0, 1, drop=True)
    steps = builder.build(start=np.zeros(1, dtype=np.int64))
    steps.drop.items[0] = 1
    assert (0, "bad-step") in rules(check(CASE.graph, CASE.machine, steps))


def test_processors_are_for_runs_only():
    builder = StepBuilder()
    builder.run(3, on=[0])
    steps = builder.build(start=np.zeros(1, dtype=np.int64))
    steps.kind[0], steps.item[0], steps.source[0], steps.target[0] = 1, 0, 0, 1
    assert (0, "bad-step") in rules(check(CASE.graph, CASE.machine, steps))


def test_steps_without_times_are_refused():
    with pytest.raises(ValueError, match="placed before they are verified"):
        check(CASE.graph, CASE.machine, StepBuilder().build())


def test_a_report_does_not_drown_its_reader():
    steps = [run("nobody", 0) for _ in range(MOST_VIOLATIONS + 50)]
    report = CASE.verify([*BASE, *steps])
    assert len(report.violations) == MOST_VIOLATIONS
    assert report.violations[0].step == 3
    assert not report.ok


def test_an_output_in_a_memory_that_the_machine_lacks():
    case = Case(DOCUMENT | {"outputs": [{"value": "w", "memory": "disk"}]})
    small = Machine(case.machine.memories[:1], case.machine.processors[:1])
    report = check(case.graph, small, case.columns(BASE))
    assert [(v.rule, v.message) for v in report.violations] == [("output-missing", "w is not in disk at the end")]
