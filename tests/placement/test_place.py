"""Placement on lists worked by hand."""

import numpy as np
import pytest

from remat.placement import Placement, Unplaceable, place
from remat.schedule.steps import StepBuilder
from remat.verifier import check
from tests.verifier.judges import Case


def case_of(**link):
    """Return two memories full duplex, unless a shared channel is given, and some things to do."""
    ends = [("device", "host"), ("host", "device"), ("device", "disk")]
    return Case(
        {
            "schema": "remat.instance/1",
            "kind": "dag",
            "units": {"time": "unit", "memory": "unit"},
            "machine": {
                "memories": [{"name": "device", "capacity": 16}, {"name": "host", "capacity": 16}, {"name": "disk"}],
                "processors": [{"name": "gpu", "memory": "device"}, {"name": "aux", "memory": "device"}],
                "links": [{"source": a, "target": b, "bandwidth": 2} | link for a, b in ends],
            },
            "values": [{"id": "x", "size": 6}, {"id": "y", "size": 4}],
            "tasks": [
                {"id": "use", "time": 5, "reads": ["x"], "writes": [], "required": False},
                {"id": "wait", "time": 4, "writes": [], "workspace": 5, "required": False},
                {"id": "flash", "time": 0, "writes": [], "workspace": 2, "required": False},
                {"id": "big", "time": 1, "writes": [], "workspace": 12, "required": False},
                {"id": "make", "time": 3, "writes": ["x"], "required": False},
                {"id": "turn", "time": 1, "reads": ["x"], "writes": ["x"], "in_place": True, "required": False},
                {
                    "id": "team",
                    "time": 9,
                    "writes": [],
                    "required": False,
                    "parallel": {"max": 2, "alpha": 0.5},
                },
            ],
            "inputs": ["x", "y", {"value": "x", "memory": "host"}],
        }
    )


DUPLEX = case_of()


def run(task, **more):
    return {"run": task} | more


def out(value, **more):
    return {"copy": value, "from": "device", "to": "host"} | more


def back(value, **more):
    return {"copy": value, "from": "host", "to": "device"} | more


def drop(value, memory="device"):
    return {"drop": [value], "memory": memory}


CASES = {
    "one processor": (DUPLEX, [run("use"), run("wait")], [0, 5]),
    "two processors": (DUPLEX, [run("use"), run("wait", on=["aux"])], [0, 0]),
    "both processors": (DUPLEX, [run("flash"), run("team", on=["aux", "gpu"]), run("flash")], [0, 0, 9 / 2**0.5]),
    "starts never decrease": (DUPLEX, [run("use"), run("wait"), run("use", on=["aux"])], [0, 5, 5]),
    "waits for memory": (DUPLEX, [run("wait"), run("flash", on=["aux"])], [0, 4]),
    "short steps follow one another": (DUPLEX, [run("flash"), run("flash"), run("use")], [0, 0, 0]),
    "one channel": (DUPLEX, [out("x"), out("y"), run("use")], [0, 3, 3]),
    "a prefetch listed early starts early": (DUPLEX, [run("use"), out("x"), out("y")], [0, 0, 3]),
    "full duplex": (DUPLEX, [out("y"), back("x", drop=True)], [0, 0]),
    "half duplex": (case_of(channel="bus"), [out("y"), back("x", drop=True)], [0, 2]),
    "synchronous": (case_of(channel="gpu"), [out("y"), run("wait"), out("y")], [0, 2, 6]),
    "latency": (case_of(latency=1), [out("y"), out("y")], [0, 3]),
    "no bandwidth, no time": (case_of(bandwidth=None, latency=0.25), [out("y"), out("y")], [0, 0.25]),
    "what does not divide is a float": (case_of(bandwidth=5), [out("x"), out("y")], [0, 1.2]),
    "a writer waits for readers": (DUPLEX, [run("use"), back("x"), run("use", on=["aux"])], [0, 5, 8]),
    "a new copy needs its own bytes": (DUPLEX, [run("wait"), back("x")], [0, 4]),
    "in place it does not": (DUPLEX, [run("wait", on=["aux"]), run("turn", drop=["x"])], [0, 0]),
    "a free waits for the reader's end": (DUPLEX, [run("use"), out("x", drop=True)], [0, 2]),
    "a drop waits for the reader's end": (DUPLEX, [run("use"), drop("x"), run("make")], [0, 5, 5]),
    "a drop elsewhere does not": (DUPLEX, [run("use"), drop("x", "host"), run("wait")], [0, 0, 5]),
    "a writer waits for a free": (DUPLEX, [out("x", drop=True), run("make")], [0, 3]),
    "memory comes with the end of a move": (DUPLEX, [out("x", drop=True), run("big")], [0, 3]),
    # The second move reads a value of which a part is leaving: it waits, though its channel is free.
    "moves of two parts": (
        DUPLEX,
        [
            out("x", to="disk", bytes=2, drop=True),
            drop("x", "host"),
            out("x", bytes=4, drop=True),
            back("x", bytes=1, drop=True),
        ],
        [0, 0, 1, 3],
    ),
    "after": (DUPLEX, [run("use"), run("flash", on=["aux"], after=[0])], [0, 5]),
    "nothing": (DUPLEX, [], []),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_start_as_by_hand(name):
    case, steps, expected = CASES[name]
    placed = place(case.graph, case.machine, case.columns(steps))
    assert isinstance(placed, Placement)
    assert placed.start.tolist() == expected
    timed = [step | {"start": start} for step, start in zip(steps, placed.start.tolist(), strict=True)]
    for step in timed:
        step.pop("after", None)
    assert case.verify(timed).ok


@pytest.mark.parametrize("on", [["gpu"], ["aux"]], ids=["sequential", "general"])
def test_a_step_that_never_fits_is_unplaceable(on):
    outcome = place(DUPLEX.graph, DUPLEX.machine, DUPLEX.columns([run("use", on=on), out("y"), run("big", on=on)]))
    assert outcome == Unplaceable(step=2, memory=0, needed=22, capacity=16)


def test_the_first_of_several_overruns_is_named():
    # Both too big for their memories: the copy comes first, though its memory does not.
    case = case_of(channel="gpu")
    steps = case.columns([out("y"), out("x"), out("x"), run("use"), run("big")])
    small = case.machine.with_capacities({"host": 15})
    assert place(case.graph, small, steps) == Unplaceable(step=1, memory=1, needed=16, capacity=15)


def test_integers_stay_integers():
    for steps in ([run("use"), out("y")], [run("use"), run("wait")]):
        assert place(DUPLEX.graph, DUPLEX.machine, DUPLEX.columns(steps)).start.dtype == np.int64


@pytest.mark.parametrize("beside", [[], [out("y")]], ids=["sequential", "general"])
def test_integers_that_leave_64_bits_become_floats(beside):
    document = DUPLEX.document
    tasks = [task | {"time": task["time"] * 2**57} for task in document["tasks"]]
    case = Case(document | {"tasks": tasks})
    steps = [*beside, *(run("use") for _ in range(14))]
    start = place(case.graph, case.machine, case.columns(steps)).start
    assert start.dtype == np.float64
    assert start[-1] == 13 * 5 * 2.0**57


@pytest.mark.parametrize(("runs", "exact"), [(6, True), (7, False)])
def test_integers_end_where_the_referee_could_not_add_one_more(runs, exact):
    """Starts are integers while all ends are below 2^62, from which two may be added."""
    document = DUPLEX.document
    tasks = [task | {"time": 2**57 if task["id"] == "use" else 1} for task in document["tasks"]]
    case = Case(document | {"tasks": tasks})
    steps = [out("y"), *(run("use") for _ in range(5 * runs))]
    start = place(case.graph, case.machine, case.columns(steps)).start
    assert (start.dtype == np.int64) == exact
    assert 2**61 < int(start[-1]) < 2**63


def test_a_slow_run_takes_a_whole_time_only_where_the_quotient_is_exact():
    """2^52 + 1 is taken by half a processor for 2^53 + 2, which float64 happens to hold, and its neighbours do not."""
    machine = {
        "memories": [{"name": "m"}],
        "processors": [{"name": "p", "memory": "m"}, {"name": "slow", "memory": "m", "speed": 0.5}],
    }
    for time, exact in ((2**51 + 1, True), (2**52 + 1, False), (2**53 + 3, False)):
        tasks = [{"id": "t", "time": time, "size": 1}]
        case = Case({"schema": "remat.instance/2", "kind": "dag", "machine": machine, "tasks": tasks})
        columns = case.columns([{"run": "t", "on": ["slow"]}, {"run": "t", "on": ["slow"]}])
        start = place(case.graph, case.machine, columns).start
        assert (start.dtype == np.int64) == exact
        report = check(case.graph, case.machine, columns.placed(start))
        assert report.ok
        assert isinstance(report.makespan, int) == exact


def test_float_sums_that_round_down_still_end_late_enough():
    """A move that frees a reader's input ends no earlier than the reader, for any rounding of end - duration."""
    document, rounded_down = case_of(latency=0.7, bandwidth=13).document, 0
    for time in (0.1 * k for k in range(1, 60)):
        tasks = [task | {"time": time if task["id"] == "use" else 0.3} for task in document["tasks"]]
        case = Case(document | {"tasks": tasks})
        steps = [run("wait"), run("use"), out("y", bytes=1, drop=True), out("x", drop=True)]
        start = place(case.graph, case.machine, case.columns(steps)).start
        end, duration = start[1] + time, 0.7 + 6 / 13
        assert start[3] + duration >= end
        rounded_down += end - duration > start[1] and end - duration + duration < end
    assert rounded_down


def test_unknown_names_are_left_to_the_verifier():
    steps = [run("nobody"), out("q"), drop("q"), run("use"), {"copy": "x", "from": "disk", "to": "host"}]
    placed = place(DUPLEX.graph, DUPLEX.machine, DUPLEX.columns(steps))
    assert placed.start.tolist() == [0, 0, 0, 0, 0]


def test_start_times_are_ignored():
    builder = StepBuilder()
    builder.run(0)
    builder.run(1)
    steps = builder.build(start=np.array([7, 90]))
    assert place(DUPLEX.graph, DUPLEX.machine, steps).start.tolist() == [0, 5]


@pytest.mark.parametrize(("capacity", "fits"), [(9, True), (8, False)])
def test_in_place_outputs_take_over_no_more_than_they_need(capacity, fits):
    """A run frees six bytes at its end; it needs two for its output and three as workspace."""
    case = Case(
        {
            "schema": "remat.instance/1",
            "kind": "dag",
            "machine": {"memories": [{"name": "memory", "capacity": capacity}]},
            "values": [{"id": "wide", "size": 6}, {"id": "slim", "size": 2}],
            "inputs": ["wide"],
            "tasks": [
                {"id": "t", "time": 1, "reads": ["wide"], "writes": ["slim"], "in_place": True, "workspace": 3},
            ],
        }
    )
    outcome = place(case.graph, case.machine, case.columns([run("t", drop=["wide"])]))
    assert isinstance(outcome, Placement) == fits


@pytest.mark.parametrize(("capacity", "fits"), [(12, True), (11, False)])
def test_in_place_outputs_take_over_all_freed_inputs(capacity, fits):
    """A run frees two inputs of six bytes; its output of ten needs nothing beyond them."""
    case = Case(
        {
            "schema": "remat.instance/1",
            "kind": "dag",
            "machine": {"memories": [{"name": "memory", "capacity": capacity}]},
            "values": [{"id": "a", "size": 6}, {"id": "b", "size": 6}, {"id": "sum", "size": 10}],
            "inputs": ["a", "b"],
            "tasks": [{"id": "t", "time": 1, "reads": ["a", "b"], "writes": ["sum"], "in_place": True}],
        }
    )
    outcome = place(case.graph, case.machine, case.columns([run("t", drop=["a", "b"])]))
    assert isinstance(outcome, Placement) == fits
