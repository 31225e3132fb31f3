"""Lines of a reversal: every run and every kept state where it belongs; bounded where there are many."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.report.views.reversal import Stroke, reversal_of, uses_of
from remat.report.views.task_index_ranges import ChainLayout
from remat.schedule.steps import StepKind
from tests.report.views.by_hand import halves, offloaded, reversed_adjoint


def lines(result, *, columns=10_000, rows=10_000, most=10_000):
    found = reversal_of(result, ChainLayout.of(result.graph), columns=columns, rows=rows, most=most)
    rows_of = zip(found.stroke.tolist(), found.begin.tolist(), found.end.tolist(), strict=True)
    return found, [(Stroke(stroke), *begin, *end) for stroke, begin, end in rows_of]


def test_a_reversal_by_hand():
    """Steps of 1, backwards of 2: three forwards, the last step, its backward, one forward again, two backwards.

    x1 is the current state and not a stored one, because no run starts from it after its recomputation.
    """
    found, drawn = lines(reversed_adjoint())
    assert found.length == 3
    assert found.hidden == 0
    assert sorted(drawn) == sorted(
        [
            (Stroke.CHECKPOINT, 0, 0, 12, 0),
            (Stroke.CHECKPOINT, 2, 2, 7, 2),
            (Stroke.FORWARD, 0, 0, 1, 1),
            (Stroke.FORWARD, 1, 1, 2, 2),
            (Stroke.FORWARD, 2, 2, 3, 3),
            (Stroke.BACKWARD, 3, 3, 5, 3),
            (Stroke.BACKWARD, 5, 3, 7, 2),
            (Stroke.RECOMPUTATION, 7, 0, 8, 1),
            (Stroke.BACKWARD, 8, 2, 10, 1),
            (Stroke.BACKWARD, 10, 1, 12, 0),
        ]
    )


def test_use_of_levels_is_what_the_verifier_measured():
    """States of one size: as many as the profile has bytes of them, and never more than fit."""
    result = remat.solve(remat.example("three_levels_n500"), algorithm="h-revolve")
    uses = uses_of(result, ChainLayout.of(result.graph))
    names = [result.machine.memories[use.memory].name for use in uses]
    assert names == ["working", "device", "host", "disk"]
    size = int(result.graph.size[0])
    for use, name in list(zip(uses, names, strict=True))[1:]:  # the working memory has more than states
        assert use.count.max() * size == result.report.peaks[name].size
        assert use.most is None or use.count.max() <= use.most
        profile = result.report.profiles[name]
        middle = (use.time[1:] + use.time[:-1]) / 2
        measured = profile.size[np.searchsorted(profile.time, middle, side="right") - 1]
        assert (use.count[:-1] * size).tolist() == measured.tolist()


def test_room_that_other_values_take_is_not_that_of_states():
    """The working memory of a loop holds one state and one gradient: it has no room for a second state."""
    disk = [{"name": "disk", "slots": 2, "write_time": 1, "read_time": 1}]
    result = remat.solve(remat.adjoint(9, forward_time=1, backward_time=1, storage=disk), algorithm="revolve")
    working, stored = uses_of(result, ChainLayout.of(result.graph))
    assert result.machine.memories[0].capacity == result.peak_memory["working"] == 2
    assert (working.count.max(), working.most) == (1, 1)
    assert (stored.count.max(), stored.most) == (2, 2)


def test_no_level_hides_another():
    found, _ = lines(remat.solve(remat.example("seismic_ram_disk"), algorithm="h-revolve"), most=600)
    kept = found.memory[found.memory >= 0]
    assert len(kept) <= 600
    counts = np.bincount(kept)
    assert counts[counts > 0].min() >= 60


def test_saving_forwards_and_other_memories():
    _, drawn = lines(halves())
    strokes = [line[0] for line in drawn]
    assert strokes == sorted(strokes)
    assert strokes.count(Stroke.FORWARD) == 2
    assert strokes.count(Stroke.SAVING) == 1
    assert strokes.count(Stroke.RECOMPUTATION) == 2
    _, drawn = lines(offloaded())
    (away,) = [line for line in drawn if line[0] is Stroke.STORED]
    assert away[2] == away[4] == 1  # x1
    (fetched,) = [line for line in drawn if line[0] is Stroke.CHECKPOINT and line[2] == 1]
    assert fetched[1] == away[3]  # for its backward; the copy takes no time


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("lecture_l5", "auto"), ("heterogeneous_n200", "walther-griewank"), ("resnet50_b32_224", "rotor")],
)
def test_sweeps_put_together_are_the_same_sweeps(name, algorithm):
    """In small pictures, consecutive runs merge into one line of the same length over the same states."""
    result = remat.solve(remat.example(name), algorithm=algorithm, budget=3 if name == "lecture_l5" else None)
    runs = int((result.columns.kind == StepKind.RUN).sum())
    single, _ = lines(result)
    assert int((single.stroke > Stroke.CHECKPOINT).sum()) == runs
    joined, drawn = lines(result, most=runs - 1)
    for stroke in (Stroke.FORWARD, Stroke.RECOMPUTATION, Stroke.BACKWARD):
        one, other = single.stroke == stroke, joined.stroke == stroke
        for axis in (0, 1):
            spans = [np.abs(v.end[m, axis] - v.begin[m, axis]).sum() for v, m in ((single, one), (joined, other))]
            assert spans[0] == pytest.approx(spans[1])
        assert other.sum() <= one.sum()
    # No two sweeps at once: there is one processor.
    sweeps = sorted(line[1:] for line in drawn if line[0] > Stroke.CHECKPOINT)
    assert all(one[2] <= other[0] + 1e-9 * result.makespan for one, other in itertools.pairwise(sweeps))


@pytest.mark.slow
def test_the_number_of_lines_is_bounded():
    result = remat.solve(remat.example("loop_n10000"))
    for most in (30, 300):
        found, drawn = lines(result, columns=200, rows=100, most=most)
        assert len(drawn) <= most
        assert found.hidden > 10_000
        sweeps = int((found.stroke > Stroke.CHECKPOINT).sum())
        assert sweeps >= most // 2
        # The first sweep is the longest.
        assert any(line[0] is Stroke.FORWARD and line[2] == 0 for line in drawn)


def test_one_step_has_one_backward():
    document = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 1, "state_size": 1}
    document |= {"forward_time": 1, "backward_time": 1}
    _, drawn = lines(remat.solve(document))
    assert [line[0] for line in drawn if line[0] > Stroke.CHECKPOINT] == [Stroke.BACKWARD]


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_no_memory_holds_more_states_than_fit(data):
    """Of loops at the edge of their memories, whose runs write in place, and times that are rounded."""
    steps = data.draw(st.integers(3, 12))
    unit = data.draw(st.sampled_from([1, 0.1]))
    forward = [unit * data.draw(st.integers(1, 5)) for _ in range(steps)]
    slots = data.draw(st.integers(1, 4))
    storage = [
        {"name": "ram", "capacity": slots * 10, "write_time": 0, "read_time": 0},
        {"name": "disk", "write_time": unit * 2, "read_time": unit},
    ]
    loop = remat.adjoint(steps, forward_time=forward, backward_time=unit, state_size=10, storage=storage)
    result = remat.solve(loop, algorithm=data.draw(st.sampled_from(["adjoint-best", "walther-griewank", "fixed"])))
    if result.report is None:
        return
    for use in uses_of(result, ChainLayout.of(result.graph)):
        name = result.machine.memories[use.memory].name
        assert use.count.max() * 10 <= max(result.peak_memory[name], 10)
