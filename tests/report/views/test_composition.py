"""Bytes by kind add up to what the verifier measured, at every instant; and kinds are what they say."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.report.views.composition import Extra, composition_of
from remat.report.views.kinds import Kind
from remat.report.views.slices import without_dips
from remat.solving.verifying import examine
from remat.testing import strategies
from tests.report.results import MOVES, OFFLOAD, chain_result, long_result, offload_result, result_of
from tests.report.views.by_hand import a_schedule, halves, offloaded, reversed_adjoint, spilled_tree
from tests.verifier.test_dag_devices import DRAWS, SEEDS, drawn

KINDS = ("chain", "adjoint", "dag", "tree")
DOCUMENTS = st.one_of(*(strategies.documents(kind) for kind in KINDS))


def adds_up(result):
    """Hold every memory's contents against its verified profile: as stairs, and where it is fullest."""
    found = composition_of(result, grouped=True)
    near = 1e-8 * float(result.makespan)
    for index, memory in enumerate(result.machine.memories):
        contents, profile = found.contents[index], result.report.profiles[memory.name]
        assert (contents.sizes >= 0).all()
        assert contents.total.max() == result.report.peaks[memory.name].size
        assert sum(contents.at_peak.values()) == contents.total.max()
        ours = contents.time.astype(float), contents.total
        grouped = found.grouped[index]
        assert grouped.time.tolist() == contents.time.tolist()
        assert grouped.total.tolist() == contents.total.tolist()
        assert (grouped.sizes >= 0).all()
        labels = len(found.groups.labels)
        assert grouped.sizes[labels + Extra.WORKSPACE].tolist() == contents.sizes[Kind.WORKSPACE].tolist()
        assert (np.diff(ours[0]) >= 0).all()
        times, sizes = without_dips(profile.time.astype(float), profile.size.astype(float))
        every = np.unique(np.concatenate((ours[0], times, [float(result.makespan)])))
        middle = ((every[1:] + every[:-1]) / 2)[np.diff(every) > near]
        measured = sizes[np.searchsorted(times, middle, side="right") - 1]
        assert ours[1][np.searchsorted(ours[0], middle, side="right") - 1].tolist() == measured.tolist()
    return found


@settings(max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(DOCUMENTS, st.booleans())
def test_kinds_add_up_to_what_was_measured(document, quickly):
    result = remat.solve(document, **a_schedule(document, quickly=quickly))
    if result.columns is not None:
        adds_up(result)


@settings(max_examples=15, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(DRAWS, SEEDS)
def test_collectives_add_up_in_each_of_their_memories(document, number):
    _, instance, plan = drawn(document, number)
    adds_up(examine(instance, plan | {"schema": "remat.schedule/2"}).as_result())


@pytest.mark.slow
@settings(max_examples=400, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(DOCUMENTS)
def test_kinds_add_up_in_many_schedules(document):
    try:
        result = remat.solve(document, **a_schedule(document, quickly=True))
    except remat.OptionError:  # some begin in a memory that the quick one does not work in
        result = remat.solve(document, algorithm="auto", time_limit=5)
    if result.columns is not None:
        adds_up(result)


def test_shipped_pipelines_add_up():
    found = adds_up(remat.solve(remat.example("uniform_p4"), algorithm="1f1b"))
    assert [dict(contents.at_peak) for contents in found.contents] == [{Kind.SAVED: size} for size in (16, 12, 8, 4)]


def stays(result):
    """Name, kind, reads and last reader of each stay."""
    found, steps, graph = composition_of(result).stays, result.columns, result.graph
    memories = [memory.name for memory in result.machine.memories]
    rows = zip(found.lives.memory, found.lives.value, found.kind, found.uses, found.last, strict=True)
    return [
        (
            memories[memory],
            graph.values[int(value)],
            Kind(kind).label,
            int(uses),
            None if last < 0 else (graph.tasks if steps.kind[last] == 0 else graph.values)[int(steps.item[last])],
        )
        for memory, value, kind, uses, last in rows
    ]


def test_kinds_of_a_chain_that_recomputes():
    found = stays(halves())
    # The input: forwards start from it twice, and the first backward reads it last.
    assert ("memory", "x0", "checkpoints", 3, "B1") in found
    assert ("memory", "x1", "in passing", 1, "F2") in found
    assert ("memory", "x1", "saved", 3, "B1") in found  # recomputed for a backward, through one forward
    assert ("memory", "s3", "saved", 1, "B3") in found
    assert ("memory", "y3", "gradients", 1, "B3") in found
    adds_up(halves())


def test_what_is_brought_away_is_saved():
    found = stays(offloaded())
    assert ("device", "x1", "saved", 2, "x1") in found  # Fe2 reads it, then it goes
    assert ("host", "x1", "saved", 1, "x1") in found
    assert ("host", "s1", "saved", 1, "s1") in found
    adds_up(offloaded())


def test_states_of_an_adjoint_without_tapes_are_checkpoints():
    found = stays(reversed_adjoint())
    assert {kind for _, value, kind, _, _ in found if value == "x0"} == {"checkpoints"}
    assert {kind for _, value, kind, _, _ in found if value == "x2"} == {"checkpoints"}
    assert {kind for _, value, kind, _, _ in found if value.startswith("y")} == {"gradients"}
    adds_up(reversed_adjoint())


def test_trees_have_values():
    assert {kind for _, _, kind, _, _ in stays(spilled_tree())} == {"values"}
    adds_up(spilled_tree())


@pytest.mark.parametrize("made", [chain_result, offload_result, long_result])
def test_schedules_by_hand_add_up(made):
    adds_up(made())


def test_steps_of_no_length_are_seen():
    """`flash` takes no time, and sets the peak."""
    flash = result_of(
        OFFLOAD | {"tasks": [OFFLOAD["tasks"][0], *(t | {"required": False} for t in OFFLOAD["tasks"][1:])]},
        [MOVES[0], {"run": "flash"}, {"drop": ["u"], "memory": "device"}],
    )
    assert composition_of(flash).contents[0].at_peak == {Kind.SAVED: 4, Kind.WORKSPACE: 3} or adds_up(flash)
    adds_up(flash)


def test_in_place_tasks_take_what_their_input_gives():
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": [{"id": "u", "size": 5}, {"id": "v", "size": 7}],
        "tasks": [
            {"id": "a", "time": 1, "writes": ["u"]},
            {"id": "b", "time": 1, "reads": ["u"], "writes": ["v"], "in_place": True},
        ],
        "outputs": ["v"],
    }
    found = adds_up(result_of(document, [{"run": "a"}, {"run": "b", "drop": ["u"]}]))
    assert found.contents[0].total.tolist()[-1] == 7


def test_several_outputs_of_one_task_in_place():
    """Neither takes less than nothing."""
    document = {"schema": "remat.instance/1", "kind": "adjoint", "tape_size": 1}
    document["steps"] = [{"tape_size": 0}] * 4 + [{"state_size": 2}, {}]
    adds_up(remat.solve(document, algorithm="dtr"))


def test_an_old_copy_that_is_written_over_is_named():
    steps = [{"run": "a"}, {"run": "a", "on": ["gpu1"]}, {"run": "b", "on": ["gpu0", "gpu1"], "drop": ["u"]}]
    found = adds_up(result_of(OFFLOAD, steps)).contents[0]
    assert found.sizes[Kind.OTHER].max() == 4


def test_a_schedule_without_steps_is_empty():
    optional = [{"id": "t", "time": 1, "writes": [], "required": False}]
    found = composition_of(result_of({"schema": "remat.instance/1", "kind": "dag", "tasks": optional}, []))
    assert found.contents[0].total.tolist() == [0]
    assert found.contents[0].at_peak == {}
