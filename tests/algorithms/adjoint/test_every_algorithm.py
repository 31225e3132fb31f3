"""Test every adjoint algorithm on bad input, extreme cases, an initial x0 and leftover storage."""

from __future__ import annotations

from typing import Any

import pytest

import remat
from remat_algorithms.adjoint.catalogue import ALGORITHMS as ADJOINT
from remat_algorithms.joint.catalogue import ALGORITHMS as JOINT

LISTED = [entry.name for entry in (*ADJOINT, *JOINT) if entry.accepts("adjoint") and "online" not in entry.name]
NAMES = [*LISTED, "store-all", "recompute-all"]
# What asks all the others takes long.
LONG = {name: [pytest.mark.slow] if name in ("adjoint-best", "dag-offload-best") else [] for name in NAMES}
UNIT = {"time": "unit", "memory": "unit"}
UNEQUAL = [{"forward_time": 1 + i % 4, "state_size": 1 + i % 3} for i in range(6)]


def loop(steps: int | list[dict[str, Any]] = 5, *levels: dict[str, Any], **more: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps}
    storage = [{"name": f"level{k}", "write_time": k, "read_time": k} | level for k, level in enumerate(levels)]
    return document | ({"storage": storage} if storage else {}) | more


def answer(document: dict[str, Any], name: str, **more: Any) -> remat.Result | None:
    """Solve; None if the algorithm refuses, with a text that names it or the machine."""
    little = {"adjoint-best": {"iterations": 2, "moves": 10_000, "window": 500, "work": 0}}
    options = (little | {"dag-offload-best": {"iterations": 2}}).get(name, {})
    try:
        result = remat.solve(document, algorithm=name, options=options, **more)
    except remat.OptionError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert name in refusal or "machine" in refusal
        return None
    if result.report is not None:
        for level in document.get("storage", ()):
            assert result.report.profiles[level["name"]].size[-1] == 0, "something is left in storage"
    return result


WITHOUT_ROOM = {
    "no slot": loop(5, {"slots": 0}),
    "no slot on two levels": loop(5, {"slots": 0}, {"slots": 0}),
    "no slot, unbounded disk": loop(5, {"slots": 0}, {}),
    "no slot, tapes": loop(5, {"slots": 0}, tape_size=1),
    "less than a state": loop(5, {"capacity": 3}, state_size=4),
    "less than a state on two levels": loop(5, {"capacity": 3}, {"capacity": 2}, state_size=4),
    "less than any unequal state": loop(UNEQUAL, {"capacity": 0}),
    "one memory, too small": loop(
        5, machine={"memories": [{"name": "m", "capacity": 1}], "processors": [{"name": "p", "memory": "m"}]}
    ),
}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, marks=LONG[name] if place % 3 else [], id=f"{name}-{case}")
        for name in NAMES
        for place, case in enumerate(WITHOUT_ROOM)
    ],
)
def test_without_room_the_least_budget_is_named(name: str, case: str) -> None:
    document = WITHOUT_ROOM[case]
    result = answer(document, name)
    if result is None or result.makespan is not None:
        return  # refused, or able to do without
    assert result.scope is not None
    least = result.least_budget
    assert least is not None
    if least.sufficient:
        memory = result.machine.memories[least.memory].name
        enough = answer(document, name, budget={memory: least.size})
        assert enough is not None
        assert enough.makespan is not None


EXTREMES = {
    "more slots than steps": loop(5, {"slots": 50}, {"slots": 60}),
    "unbounded": loop(5, {}, {}),
    "states without size": loop(5, {"slots": 2}, {}, state_size=0),
    "states without size, no room": loop(5, {"capacity": 0}, {"capacity": 0}, state_size=0),
    "free steps": loop(5, {"slots": 4}, {}, forward_time=0),
    "nothing takes time": loop(5, {"slots": 4, "write_time": 0, "read_time": 0}, {}, forward_time=0, backward_time=0),
    "one step": loop(1, {"slots": 0}, {"slots": 0}),
}


@pytest.mark.parametrize("case", EXTREMES)
@pytest.mark.parametrize("name", NAMES)
def test_extremes_are_solved(name: str, case: str) -> None:
    result = answer(EXTREMES[case], name)
    assert result is None or result.makespan is not None


@pytest.mark.parametrize("where", ["level0", "level1", "level2"])
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        pytest.param(name, steps, marks=LONG[name] if steps == 9 else [], id=f"{name}-{shown}")
        for name in NAMES
        for steps, shown in ((1, 1), (2, 2), (5, 5), (9, 9), (UNEQUAL, "unequal"))
        if steps != 5 or LONG[name]
    ],
)
def test_a_given_x0_is_used_or_discarded(name: str, steps: Any, where: str) -> None:
    """A given x0 never raises the cost unless a note declines it; the schedule leaves no copy behind."""
    for tapes in ({}, {"tape_size": 1}):
        document = loop(steps, {"slots": 3}, {}, {"slots": 2}, **tapes)
        given = answer(document | {"initial_state": where}, name)
        free = answer(document, name)
        assert (given is None) == (free is None)
        if given is not None and free is not None and free.makespan is not None:
            assert given.makespan is not None
            assert given.makespan <= free.makespan


BAD = [
    ({"forward_time": -1}, "forward_time"),
    ({"backward_time": -1}, "backward_time"),
    ({"state_size": -1}, "state_size"),
    ({"adjoint_size": -1}, "adjoint_size"),
    ({"tape_size": -1}, "tape_size"),
    ({"steps": 0}, "steps"),
    ({"steps": []}, "steps"),
    ({"steps": [{"forward_time": -3}]}, "steps"),
    ({"storage": [{"name": "a", "write_time": -1}]}, "write_time"),
    ({"storage": [{"name": "a", "read_time": -1}]}, "read_time"),
    ({"storage": [{"name": "a", "slots": -1}]}, "slots"),
    ({"storage": [{"name": "a", "capacity": -1}]}, "capacity"),
    ({"storage": [{"name": "a", "bandwidth": 0}]}, "bandwidth"),
    ({"initial_state": "nowhere"}, "initial_state"),
]


@pytest.mark.parametrize(("bad", "where"), BAD)
def test_bad_figures_are_named(bad: dict[str, Any], where: str) -> None:
    with pytest.raises(remat.InstanceError, match=where):
        remat.load(loop() | bad)


@pytest.mark.parametrize("name", ["walther-griewank", "treeverse"])
def test_slots_of_the_largest_state_are_pointed_out(name: str) -> None:
    result = answer(loop(UNEQUAL, {"capacity": 7}, {}, initial_state="level1"), name)
    assert result is not None
    assert "each checkpoint counts as the largest state (3)" in result.notes[0]
    assert "x0 in 'level1' is not used" in result.notes[1]


ONE_WAY = {
    "memories": [{"name": "device"}, {"name": "host"}],
    "processors": [{"name": "gpu", "memory": "device"}],
    "links": [{"source": "device", "target": "host"}],
}


@pytest.mark.parametrize("name", [*NAMES, "fixed"])
def test_storage_that_cannot_be_read_is_refused_or_left_alone(name: str) -> None:
    for ends in (("device", "host"), ("host", "device")):
        links = [dict(zip(("source", "target"), ends, strict=True))]
        answer(loop(2, machine=ONE_WAY | {"links": links}), name)


@pytest.mark.parametrize("name", NAMES)
def test_storage_is_not_called_enough_beside_too_small_a_working_memory(name: str) -> None:
    links = [*ONE_WAY["links"], {"source": "host", "target": "device"}]
    document = loop([{}, {}], state_size=5, tape_size=2, static_memory=10, machine=ONE_WAY | {"links": links})
    for device in range(15, 32, 2):
        result = answer(document, name, budget={"device": device, "host": 0})
        least = None if result is None else result.least_budget
        if least is not None and least.sufficient:
            memory = result.machine.memories[least.memory].name
            enough = answer(document, name, budget={"device": device, "host": 0} | {memory: least.size})
            assert enough is not None
            assert enough.makespan is not None, f"{device} in the device, and {least.size} in {memory}"
