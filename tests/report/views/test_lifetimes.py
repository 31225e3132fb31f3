"""Stays of values add up to what the verifier measured, and say how the values came there."""

import itertools

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.report.views.lifetimes import Origin, lives_of
from remat.schedule.steps import StepKind
from remat.testing import strategies
from tests.report.results import MOVES, OFFLOAD, chain_result, offload_result, result_of
from tests.report.views.by_hand import a_schedule

DOCUMENTS = st.one_of(*(strategies.documents(kind) for kind in ("chain", "adjoint", "dag", "tree")))


def lives(result):
    return lives_of(result.graph, result.machine, result.columns, result.report)


def listed(result):
    """Every stay with names: memory, value, origin, begin, end."""
    found = lives(result)
    memories = [memory.name for memory in result.machine.memories]
    rows = zip(found.memory, found.value, found.origin, found.begin, found.end, strict=True)
    return [
        (memories[memory], result.graph.values[int(value)], Origin(origin), float(begin), float(end))
        for memory, value, origin, begin, end in rows
    ]


def bytes_at(result, memory, time):
    """Return the bytes in a memory between events: values, workspaces, static memory."""
    found, graph, steps = lives(result), result.graph, result.columns
    there = (found.memory == memory) & (found.begin <= time) & (time < found.end)
    total = int(graph.size[found.value[there]].sum()) + (graph.static_memory if memory == 0 else 0)
    running = (steps.kind == StepKind.RUN) & (result.report.start <= time) & (time < result.report.end)
    first = [0] * len(steps) if steps.on is None else [(row or [0])[0] for row in steps.on.to_lists()]
    mine = [k for k in np.flatnonzero(running) if result.machine.processors[first[k]].memory == memory]
    return total + int(graph.workspace[steps.item[mine]].sum())


@settings(max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(DOCUMENTS, st.booleans())
def test_they_add_up_to_the_profile(document, quickly):
    result = remat.solve(document, **a_schedule(document, quickly=quickly))
    if result.columns is None:
        return
    found, graph = lives(result), result.graph
    exact = not graph.in_place.any() and not (result.columns.amount >= 0).any()
    # While a value is written afresh, its old copy stays, too.
    afresh = (found.begin[1:] == found.end[:-1]) & (found.value[1:] == found.value[:-1])
    exact = exact and not (afresh & (found.memory[1:] == found.memory[:-1])).any()
    for memory, of_memory in enumerate(result.machine.memories):
        profile = result.report.profiles[of_memory.name]
        times = np.unique(np.concatenate((profile.time, result.report.start, result.report.end))).astype(float)
        for before, after in itertools.pairwise(times.tolist()):
            if after - before <= 1e-6 * float(result.report.makespan):
                continue
            middle = (before + after) / 2
            measured = int(profile.size[np.searchsorted(profile.time, middle, side="right") - 1])
            if exact:
                assert bytes_at(result, memory, middle) == measured
            elif not graph.in_place.any() and not (result.columns.amount >= 0).any():
                assert bytes_at(result, memory, middle) <= measured


def test_how_values_came_there():
    assert listed(offload_result()) == [
        ("device", "u", Origin.COMPUTED, 0, 4),
        ("device", "u", Origin.RECOMPUTED, 4, 9),
        ("device", "u", Origin.COPIED, 9, 9.5),
        ("device", "v", Origin.COMPUTED, 6, 9),
        ("host", "u", Origin.COPIED, 2, 9.5),
    ]


def test_stays_of_one_value_do_not_overlap():
    found = lives(chain_result())
    same = (found.memory[1:] == found.memory[:-1]) & (found.value[1:] == found.value[:-1])
    assert (found.begin[1:][same] >= found.end[:-1][same]).all()
    assert (found.end >= found.begin).all()
    assert set(found.origin.tolist()) == {Origin.INITIAL, Origin.COMPUTED, Origin.RECOMPUTED}


def test_a_value_that_is_updated_stays():
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": [{"id": "v", "size": 3}],
        "tasks": [
            {"id": "make", "time": 1, "writes": ["v"]},
            {"id": "update", "time": 1, "reads": ["v"], "writes": ["v"], "recomputable": False},
        ],
        "outputs": ["v"],
    }
    result = result_of(document, [{"run": "make"}, {"run": "update"}])
    assert listed(result) == [("memory", "v", Origin.COMPUTED, 0, 2)]


def test_a_value_stays_until_its_last_part_has_gone():
    moves = [*MOVES[:1], *({"copy": "u", "from": "device", "to": "host", "bytes": 2, "drop": True} for _ in range(2))]
    optional = OFFLOAD | {"tasks": [OFFLOAD["tasks"][0], *(t | {"required": False} for t in OFFLOAD["tasks"][1:])]}
    assert listed(result_of(optional, moves)) == [
        ("device", "u", Origin.COMPUTED, 0, 4),
        ("host", "u", Origin.COPIED, 2, 4),
    ]


def test_a_schedule_without_steps_has_no_lifetimes():
    optional = [{"id": "t", "time": 1, "writes": [], "required": False}]
    assert listed(result_of({"schema": "remat.instance/1", "kind": "dag", "tasks": optional}, [])) == []
