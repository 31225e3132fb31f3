"""Residents at the peak add up to what the verifier measured; profiles have their shape."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.report.text.schedule_view import COLUMNS, profile_lines, schedule_view, to_dict
from remat.report.views.residents import residents_at
from remat.solving.verifying import examine
from remat.testing import strategies
from remat.verifier import Profile
from tests.cli.helpers import CHAIN
from tests.report.views.by_hand import a_schedule

DOCUMENTS = st.one_of(*(strategies.documents(kind) for kind in ("chain", "adjoint", "dag", "tree")))


def at_peak(examined, index):
    peak = examined.report.peaks[examined.machine.memories[index].name]
    return peak, residents_at(
        examined.graph, examined.machine, examined.steps, examined.report, memory=index, step=peak.step
    )


@settings(max_examples=30, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(DOCUMENTS, st.booleans())
def test_residents_add_up_to_the_peak(document, quickly):
    result = remat.solve(document, **a_schedule(document, quickly=quickly))
    if result.columns is None:
        return
    examined = examine(document, result.to_dict())
    assert examined.report.ok
    for index in range(len(examined.machine.memories)):
        peak, listed = at_peak(examined, index)
        assert sum(resident.size for resident in listed) == peak.size
        assert [r.size for r in listed] == sorted((r.size for r in listed), reverse=True)
        reused = [r for r in listed if r.name.startswith("being replaced")]
        in_place = any(task.get("in_place") for task in document.get("tasks", ())) or document.get("in_place")
        assert not reused or in_place or document["kind"] == "adjoint"


def test_what_fills_a_chain_at_its_peak():
    examined = examine(CHAIN, remat.solve(CHAIN, algorithm="store-all").to_dict())
    peak, listed = at_peak(examined, 0)
    names = {resident.name for resident in listed}
    assert {"x0", "x1", "x2", "x3", "s1", "s2", "s3"} <= names
    assert peak.size == 24
    text = schedule_view(examined)
    assert "peak 24" in text
    assert "waits for" in text


def test_a_profile_fills_its_picture():
    profile = Profile(np.array([0.0, 10 * 35.5 / 72]), np.array([8, 4]))
    lines = profile_lines(profile, 10.0, 8, rows=2)
    assert lines == ["█" * (COLUMNS // 2), "█" * COLUMNS]
    assert profile_lines(Profile(np.array([0]), np.array([0])), 0.0, 0, rows=2) == ["", ""]


@pytest.mark.parametrize("amount", [1, 3])
def test_moved_parts_are_counted(amount):
    machine = {
        "memories": [{"name": "a"}, {"name": "b"}],
        "processors": [{"name": "p", "memory": "a"}],
        "links": [{"source": "a", "target": "b"}, {"source": "b", "target": "a"}],
    }
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "tasks": [{"id": "t", "time": 1, "size": 4}, {"id": "u", "time": 1, "size": 9}],
        "machine": machine,
    }
    steps = [
        {"run": "t"},
        {"copy": "t", "from": "a", "to": "b", "bytes": amount, "drop": True},
        {"run": "u", "after": [1]},
    ]
    examined = examine(document, {"schema": "remat.schedule/1", "steps": steps})
    peak, listed = at_peak(examined, 0)
    assert {r.name: r.size for r in listed} == {"t": 4 - amount, "u": 9}
    assert peak.size == 13 - amount


@pytest.mark.parametrize("seed", range(6))
def test_kinds_of_a_schedule_that_breaks_rules_are_those_of_the_same_schedule_with_more_memory(seed):
    draw = random.Random(seed)
    stages = [
        {"forward_time": draw.randint(1, 4), "backward_time": draw.randint(1, 5), "output_size": draw.randint(1, 9)}
        | {"saved_size": draw.randint(0, 9), "backward_workspace": draw.randint(0, 3), "update_time": 1}
        | {"parameter_size": draw.randint(1, 9), "optimizer_size": draw.randint(0, 9)}
        for _ in range(draw.randint(2, 4))
    ]
    document = {"schema": "remat.instance/2", "kind": "chain", "input_size": 3, "stages": stages}
    document["static_memory"] = draw.choice([0, 5])
    result = remat.solve(document, algorithm="keep-all")
    views = []
    for spare in (0, -1):
        memory = {"name": "memory", "capacity": result.peak_memory["memory"] + spare}
        examined = examine(document, result.to_dict(), machine={"memories": [memory]})
        assert examined.report.ok == (spare == 0)
        views.append(to_dict(examined))
    fits, exceeds = (view["memories"]["memory"] for view in views)
    assert list(exceeds["terms"].items()) == list(fits["terms"].items())
    assert sum(exceeds["terms"].values()) == exceeds["peak"] == result.peak_memory["memory"]
    assert exceeds["terms"]["parameters"] == sum(stage["parameter_size"] for stage in stages)
