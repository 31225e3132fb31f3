"""The referee and the placer against schedules worked by hand."""

import random

import pytest

from .placer import place, with_starts
from .referee import check

MACHINE = {
    "memories": [{"name": "device", "capacity": 20}, {"name": "host", "capacity": 30}],
    "processors": [{"name": "gpu", "memory": "device"}, {"name": "aux", "memory": "device"}],
    "links": [
        {"source": "device", "target": "host", "bandwidth": 2, "channel": "d2h"},
        {"source": "host", "target": "device", "bandwidth": 2, "latency": 1},
    ],
}
DAG = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "machine": MACHINE,
    "values": [{"id": name, "size": size} for name, size in [("i", 5), ("u", 4), ("v", 3), ("w", 2)]],
    "tasks": [
        {"id": "a", "time": 2, "reads": [], "writes": ["u"]},
        {"id": "b", "time": 3, "reads": ["u"], "writes": ["v"], "workspace": 1, "once": True},
        {"id": "c", "time": 1, "reads": ["u", "v"], "writes": ["w"], "recomputable": False},
        {"id": "idle", "time": 2, "reads": [], "writes": [], "required": False},
        {"id": "flash", "time": 0, "reads": [], "writes": [], "workspace": 7, "required": False},
        {"id": "many", "time": 8, "reads": [], "writes": [], "required": False, "parallel": {"max": 2}},
        {"id": "peek", "time": 4, "reads": ["i"], "writes": [], "required": False},
        {"id": "turn", "time": 2, "reads": ["u"], "writes": ["u"], "required": False},
        {
            "id": "slide",
            "time": 2,
            "reads": ["u"],
            "writes": ["v"],
            "workspace": 2,
            "required": False,
            "in_place": True,
        },
    ],
    "inputs": ["i"],
    "pinned_inputs": ["i"],
    "outputs": ["w"],
}
A = {"run": "a", "start": 0}
B = {"run": "b", "start": 2}
C = {"run": "c", "start": 5}
BASE = [A, B, C]


def drop(value, start, memory="device"):
    return {"drop": [value], "memory": memory, "start": start}


def out(value, start, **more):
    return {"copy": value, "from": "device", "to": "host", "start": start} | more


def back(value, start, **more):
    return {"copy": value, "from": "host", "to": "device", "start": start} | more


def run(task, start=None, **more):
    return {"run": task} | ({} if start is None else {"start": start}) | more


def test_a_valid_schedule_and_its_figures():
    report = check(DAG, [A, B, out("u", 2), C, drop("u", 6)])
    assert report.violations == []
    assert report.makespan == 6
    # i 5, u 4, v 3, w 2 while c runs; b adds v 3 and workspace 1 before.
    assert report.peaks == {"device": 14, "host": 4}
    assert report.peak_steps == {"device": 3, "host": 2}
    assert report.recompute_time == 0
    assert report.transferred == {"device->host": 4, "host->device": 0}
    assert report.idle["gpu"] == 0
    assert report.idle["aux"] == 6
    assert report.idle["d2h"] == 4
    assert check(DAG, [*BASE, run("a", 6)]).recompute_time == 2


CASES = {
    "unknown task": ([run("nobody", 6)], [(3, "unknown-task")]),
    "unknown value, dropped": ([drop("q", 6)], [(3, "unknown-value")]),
    "unknown value, copied": ([out("q", 6)], [(3, "unknown-value")]),
    "unknown memory": ([drop("u", 6, "moon")], [(3, "unknown-memory")]),
    "unknown memory, copy": ([{"copy": "u", "from": "device", "to": "moon", "start": 6}], [(3, "unknown-memory")]),
    "unknown processor": ([run("a", 6, on=["tpu"])], [(3, "unknown-processor")]),
    "unknown link": ([{"copy": "u", "from": "device", "to": "device", "start": 6}], [(3, "unknown-link")]),
    "no start": ([{"run": "a"}], [(3, "bad-step")]),
    "negative start": ([run("idle", -1)], [(3, "bad-step")]),
    "no kind": ([{"walk": "a", "start": 6}], [(3, "bad-step")]),
    "drops a stranger": ([run("idle", 6, drop=["u"])], [(3, "bad-step")]),
    "two processors for a plain task": ([run("idle", 6, on=["gpu", "aux"])], [(3, "bad-step")]),
    "two processors for a parallel task": ([run("many", 6, on=["gpu", "aux"])], []),
    "overlap": ([run("idle", 6), run("idle", 7)], [(4, "resource-busy")]),
    "overlap with the past and the future": ([run("idle", 1)], [(1, "resource-busy"), (3, "resource-busy")]),
    "overlap on another processor": ([run("idle", 1, on=["aux"])], []),
    "touching": ([run("idle", 6)], []),
    "zero length inside": ([run("flash", 3)], [(3, "resource-busy")]),
    "zero length at the boundary, listed after the next": ([run("flash", 2)], [(3, "resource-busy")]),
    "channel overlap": ([out("u", 6), out("v", 7)], [(4, "resource-busy")]),
    "both directions": ([out("u", 6), back("u", 8), out("v", 9)], []),
    "read of nothing": ([drop("u", 6), run("turn", 6)], [(4, "read-missing")]),
    "copy of nothing": ([back("u", 6)], [(3, "read-missing")]),
    "read before completion": ([out("u", 1)], [(3, "value-busy"), (3, "read-missing")]),
    "read while re-produced": ([run("a", 6), out("u", 7)], [(4, "value-busy")]),
    "re-produced while read": ([out("u", 6), run("a", 7)], [(4, "value-busy")]),
    "re-produced twice at once": (
        [out("w", 6, drop=True), drop("v", 7), run("a", 7), run("a", 8, on=["aux"]), back("w", 10)],
        [(6, "value-busy")],
    ),
    "freed while re-produced": ([run("a", 6), drop("u", 7)], [(4, "value-busy")]),
    "freed while read": ([drop("u", 3)], [(3, "value-busy")]),
    "copied away while read": ([out("u", 2, drop=True)], [(3, "value-busy")]),
    "copied away as the reader ends": ([out("u", 4, drop=True)], []),
    "own re-production": ([run("turn", 6)], []),
    "free of nothing": ([drop("w", 2)], [(3, "free-missing")]),
    "freed twice at one instant": (
        [run("turn", 6, drop=["u"]), drop("u", 8)],
        [(4, "free-missing")],
    ),
    "whole value as a part": ([out("u", 6, bytes=4, drop=True)], [(3, "bad-bytes")]),
    "no part": ([out("u", 6, bytes=0, drop=True)], [(3, "bad-bytes")]),
    "part without drop": ([out("u", 6, bytes=2)], [(3, "bad-bytes")]),
    "too many parts": (
        [out("u", 6), out("u", 8, bytes=2, drop=True)],
        [(4, "bad-bytes")],
    ),
    "part of a part that is not there": (
        [out("u", 6, bytes=3, drop=True), out("u", 8, bytes=2, drop=True)],
        [(4, "read-missing"), (4, "bad-bytes"), (4, "free-missing")],
    ),
    "parts do not make a value": ([out("u", 6, bytes=3, drop=True), run("turn", 8)], [(4, "read-missing")]),
    "parts come together": (
        [out("u", 6, bytes=3, drop=True), out("u", 8, bytes=1, drop=True), back("u", 9, drop=True), run("turn", 12)],
        [],
    ),
    "pinned": ([drop("i", 6)], [(3, "pinned-input")]),
    "pinned, run": ([run("peek", 6, drop=["i"])], [(3, "pinned-input")]),
    "pinned, part": ([out("i", 6, bytes=1, drop=True)], [(3, "pinned-input")]),
    "its copy elsewhere is not pinned": ([out("i", 6), drop("i", 9, "host")], []),
    "once": ([run("b", 6)], [(3, "once-repeated")]),
    "not recomputable": ([run("c", 6)], [(3, "not-recomputable")]),
    "output gone": ([drop("w", 6)], [(None, "output-missing")]),
    "output gone in part": ([out("w", 6, bytes=1, drop=True)], [(None, "output-missing")]),
    "capacity, at a zero-length step": (
        [run("flash", 6)],
        [(3, "capacity")],  # 14 + 7
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_rule_at_a_time(name):
    more, expected = CASES[name]
    report = check(DAG, BASE + more)
    # The order of the messages is nobody's concern.
    assert sorted(report.violations, key=str) == sorted(expected, key=str)


def test_missing_tasks_and_outputs_are_violations():
    assert sorted(check(DAG, [A]).violations, key=str) == [
        (None, "output-missing"),
        (None, "required-missing"),
        (None, "required-missing"),
    ]


def test_initial_capacity_and_the_schedules_machine():
    small = MACHINE | {"memories": [{"name": "device", "capacity": 4}, {"name": "host"}]}
    report = check(DAG, {"machine": small, "steps": BASE})
    assert report.machine_differs
    assert report.violations == [(None, "capacity")] + [(i, "capacity") for i in range(3)]
    assert (None, "capacity") not in check(DAG | {"static_memory": 15}, BASE).violations
    assert (None, "capacity") in check(DAG | {"static_memory": 16}, BASE).violations


def test_order_at_one_instant():
    # At 6, c ends and frees u and v before the zero-length step takes its 7 bytes: 5 + 2 + 7.
    report = check(DAG, [A, B, run("c", 5, drop=["u", "v"]), run("flash", 6)])
    assert report.violations == []
    assert report.peaks["device"] == 14
    # Listed first, the zero-length step is over before the next begins: 5 + 7, then 5 + 4.
    assert check(DAG, [run("flash", 0), A, B, C]).peaks["device"] == 14
    # A drop listed after the run that starts at the same instant comes too late, before it is in time.
    late = [A, B, C, out("u", 6), run("a", 8), drop("u", 8)]
    assert check(DAG, late).violations == [(5, "value-busy")]
    early = [A, B, C, out("u", 6), drop("u", 8), run("a", 8)]
    assert check(DAG, early).violations == []


def test_re_production_holds_two_copies():
    report = check(DAG, [*BASE, run("a", 6)])
    assert report.peaks["device"] == 5 + 4 + 3 + 2 + 4


def test_in_place_reuses_dropped_inputs():
    steps = [A, B, C, run("slide", 6, drop=["u"]), drop("v", 8)]
    # 14 and the workspace; v's 3 bytes fit into u's 4, the byte that is left over serves nobody.
    assert check(DAG, steps).peaks["device"] == 16
    for dropped in ([], ["v"]):  # dropped outputs do not free bytes for outputs
        steps[3] = run("slide", 6, drop=dropped)
        assert check(DAG, steps[:4]).peaks["device"] == 19


def test_float_instants_are_clusters():
    document = DAG | {"tasks": [task | {"time": task["time"] * 0.1} for task in DAG["tasks"]]}
    steps = [run("a", 0), run("b", 0.2), run("c", 0.2 + 0.3 - 1e-11)]
    assert check(document, steps).violations == []
    steps[2]["start"] -= 1e-8
    assert check(document, steps).rules == {"resource-busy", "read-missing", "value-busy"}
    # Integers are exact however large they are.
    large = DAG | {"tasks": [task | {"time": task["time"] * 10**12} for task in DAG["tasks"]]}
    assert check(large, [run("a", 0), run("b", 2 * 10**12), run("c", 5 * 10**12)]).ok
    assert not check(large, [run("a", 0), run("b", 2 * 10**12 - 1), run("c", 5 * 10**12)]).ok


def test_parallel_runs_occupy_all_their_processors():
    report = check(DAG, [*BASE, run("many", 6, on=["gpu", "aux"])])
    assert report.makespan == 10
    assert isinstance(report.makespan, int)
    assert check(DAG, [*BASE, run("many", 6, on=["gpu", "aux"]), run("idle", 9, on=["aux"])]).rules == {"resource-busy"}


# --- placement ----------------------------------------------------------------------------------------------------


def transfers(**links):
    """Machine with x (6 bytes) and y (4) on the device, x also on the host; tasks that only take time."""
    machine = {
        "memories": [{"name": name, "capacity": 16} for name in ("device", "host", "disk")],
        "processors": [{"name": "gpu"}, {"name": "aux"}],
        "links": [
            {"source": source, "target": target, "bandwidth": 2} | links
            for source, target in [("device", "host"), ("host", "device"), ("device", "disk")]
        ],
    }
    return {
        "kind": "dag",
        "machine": machine,
        "values": [{"id": "x", "size": 6}, {"id": "y", "size": 4}],
        "tasks": [
            {"id": "use", "time": 5, "reads": ["x"], "required": False},
            {"id": "wait", "time": 4, "workspace": 5, "required": False},
            {"id": "flash", "time": 0, "workspace": 2, "required": False},
            {"id": "big", "time": 1, "workspace": 12, "required": False},
            {"id": "make", "time": 3, "writes": ["x"], "required": False},
        ],
        "inputs": ["x", "y", {"value": "x", "memory": "host"}],
    }


DUPLEX = transfers()
PLACEMENTS = {
    "one processor": (DUPLEX, [run("use"), run("wait")], [0, 5]),
    "starts never decrease": (DUPLEX, [run("use"), run("use"), run("flash", on=["aux"])], [0, 5, 5]),
    "zero-length step waits for its processor": (DUPLEX, [run("wait"), run("flash")], [0, 4]),
    "zero-length step waits for memory": (DUPLEX, [run("wait"), run("flash", on=["aux"])], [0, 4]),
    "zero-length steps follow one another": (DUPLEX, [run("flash"), run("flash"), run("use")], [0, 0, 0]),
    "copies queue, runs overlap": (DUPLEX, [out("x", 9), out("y", 9), run("use")], [0, 3, 3]),
    "prefetch listed early": (DUPLEX, [run("use"), out("x", 0), out("y", 0)], [0, 0, 3]),
    "full duplex": (DUPLEX, [out("y", 0), back("x", 0, drop=True)], [0, 0]),
    "half duplex": (transfers(channel="bus"), [out("y", 0), back("x", 0, drop=True)], [0, 2]),
    "synchronous": (transfers(channel="gpu"), [out("y", 0), run("wait"), out("y", 0)], [0, 2, 6]),
    "latency": (transfers(latency=1), [out("y", 0), out("y", 0)], [0, 3]),
    "a writer waits for readers, readers for the writer": (
        DUPLEX,
        [run("use"), back("x", 0), run("use", on=["aux"])],
        [0, 5, 8],
    ),
    "re-production takes bytes twice": (DUPLEX, [run("wait"), back("x", 0)], [0, 4]),
    "a free waits for the reader's end": (DUPLEX, [run("use"), out("x", 0, drop=True)], [0, 2]),
    "a drop waits for the reader's end": (DUPLEX, [run("use"), drop("x", 0), run("make")], [0, 5, 5]),
    "a writer waits for a free": (DUPLEX, [out("x", 0, drop=True), run("make")], [0, 3]),
    "memory comes with the end of a move": (DUPLEX, [out("x", 0, drop=True), run("big")], [0, 3]),
    "moves of two parts, one channel": (
        DUPLEX,
        [drop("x", 0, "host"), out("x", 0, bytes=2, drop=True), out("x", 0, bytes=3, drop=True)],
        [0, 0, 1],
    ),
    "moves of two parts, two channels": (
        DUPLEX,
        [
            out("x", 0, to="disk", bytes=2, drop=True),
            drop("x", 0, "host"),
            out("x", 0, bytes=4, drop=True),
            back("x", 0, bytes=1, drop=True),
        ],
        [0, 0, 1, 3],
    ),
    "after": (DUPLEX, [run("use"), run("flash", on=["aux"], after=[0])], [0, 5]),
    "never fits": (DUPLEX, [run("use"), out("y", 0), run("big")], ("infeasible", 2)),
}


@pytest.mark.parametrize("name", PLACEMENTS)
def test_placement_by_hand(name):
    document, steps, expected = PLACEMENTS[name]
    assert place(document, steps) == expected
    if isinstance(expected, list):
        assert check(document, with_starts(document, steps)).violations == []


def test_parts_of_a_value_leave_one_after_the_other():
    whole = [drop("x", 0, "host"), out("x", 0, to="disk", bytes=2, drop=True), out("x", 1, bytes=4, drop=True)]
    assert check(DUPLEX, whole).violations == []
    whole[2]["start"] = 0
    assert check(DUPLEX, whole).violations == [(1, "value-busy")]


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (10, 20))])
@pytest.mark.parametrize("unit", [1, 0.1], ids=["integer", "float"])
@pytest.mark.parametrize("channel", [None, "bus", "gpu"])
def test_what_is_valid_one_by_one_is_valid_when_placed(unit, channel, first):
    document = transfers(**({} if channel is None else {"channel": channel}))
    document = document | {"tasks": [task | {"time": task["time"] * unit} for task in document["tasks"]]}
    document["tasks"].append({"id": "mix", "time": unit, "reads": ["x", "y"], "writes": ["y"], "in_place": True})
    document["tasks"][-1]["required"] = False
    links = [("device", "host"), ("host", "device"), ("device", "disk")]
    for seed in range(first, first + 10):
        chance = random.Random(f"{seed} {unit} {channel}")
        steps, makespan = [], 0
        for _ in range(60):
            kind, value = chance.random(), chance.choice("xy")
            if kind < 0.4:
                task = chance.choice(document["tasks"])
                held = task.get("reads", []) + task.get("writes", [])
                step = run(task["id"], on=[chance.choice(["gpu", "aux"])])
                step["drop"] = [name for name in dict.fromkeys(held) if chance.random() < 0.3]
            elif kind < 0.9:
                source, target = chance.choice(links)
                step = {"copy": value, "from": source, "to": target, "drop": chance.random() < 0.6}
                if step["drop"] and chance.random() < 0.6:
                    step["bytes"] = chance.randint(1, 3)
            else:
                step = {"drop": [value], "memory": chance.choice(["device", "host", "disk"])}
            # Sequential steps: each starts when the previous list has ended.
            longer = [*steps, step | {"start": makespan}]
            report = check(document, longer)
            if report.ok:
                steps, makespan = longer, report.makespan
        assert len(steps) > 8
        placed = check(document, with_starts(document, steps))
        assert placed.violations == []
        assert placed.makespan <= makespan * (1 + 1e-9)
