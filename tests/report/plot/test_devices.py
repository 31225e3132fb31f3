"""The picture of a pipeline: operations where the verifier measured them, also of a saved schedule."""

import pytest

import remat
from remat.generate import generate
from remat.report.plot.schedule import plot
from remat.report.views.forward_backward import passes_of
from remat.schedule.document import Run
from remat.schedule.orders import Phase
from remat.solving.verifying import examine

HALVES = {"backward_time": 1, "weight_time": 1, "activation": 2, "kept": 1}


def solved(algorithm, **changed):
    document = generate("pipeline", "uniform", **changed)
    return document, remat.solve(document, algorithm=algorithm)


def test_passes_are_where_they_are():
    _, result = solved("1f1b", devices=2, micro_batches=2, layers=4)
    found = passes_of(result)
    listed = list(zip(found.device, found.phase, found.batch, found.start, found.end, strict=True))
    # Stages of two layers: forwards of 2, backwards of 4.
    assert listed == [
        (0, Phase.F, 0, 0, 2),
        (0, Phase.F, 1, 2, 4),
        (0, Phase.B, 0, 8, 12),
        (0, Phase.B, 1, 14, 18),
        (1, Phase.F, 0, 2, 4),
        (1, Phase.B, 0, 4, 8),
        (1, Phase.F, 1, 8, 10),
        (1, Phase.B, 1, 10, 14),
    ]
    assert not found.chunk.any()


def test_chunks_and_the_steady_state():
    _, result = solved("zb-v", layers=8, **HALVES)
    found = passes_of(result)
    assert sorted(set(found.chunk.tolist())) == [0, 1]
    assert found.steady == (11, 35)
    assert passes_of(solved("gpipe")[1]).steady is None


@pytest.mark.parametrize(
    ("algorithm", "changed"),
    [
        ("1f1b", {}),
        ("zb-v", {"layers": 8} | HALVES),
        pytest.param("1f1b", {"devices": 34, "micro_batches": 12}, marks=pytest.mark.slow),
    ],
)
def test_pictures_are_drawn_from_saved_schedules_too(algorithm, changed, tmp_path):
    document, result = solved(algorithm, **changed)
    plot(result, tmp_path / "one.svg", view="devices")
    plot(examine(document, result.to_dict()).as_result(), tmp_path / "two.svg", view="devices")
    assert (tmp_path / "one.svg").read_bytes()[:200] == (tmp_path / "two.svg").read_bytes()[:200]
    assert (tmp_path / "one.svg").stat().st_size < 3_000_000


def test_only_of_pipelines(tmp_path):
    chain = remat.solve(remat.example("lecture_l5"))
    with pytest.raises(remat.OptionError, match="devices"):
        plot(chain, tmp_path / "x.svg", view="devices")


def test_what_is_recomputed_inside_a_backward_is_shown():
    """A layer recomputed right before its backward has no operation; its time is still that of the verifier."""
    step = remat.pipeline(
        forward_time=[2, 3, 2, 2],
        backward_time=4,
        output_size=1,
        saved_size=4,
        devices=2,
        memory=13,
        micro_batches=3,
        time_unit="unit",
        size_unit="unit",
    )
    result = remat.solve(step, algorithm="pipe-plan", options={"moves": 300})
    found = passes_of(result)
    seen, wanted = set(), {}
    for task, on, start, end in sorted(
        (
            (step.task, step.on[0], float(result.report.start[k]), float(result.report.end[k]))
            for k, step in enumerate(result.steps)
            if isinstance(step, Run)
        ),
        key=lambda one: one[2],
    ):
        if task in seen:
            wanted[on] = wanted.get(on, 0) + end - start
        seen.add(task)
    assert wanted
    operation, start, end = found.recomputed
    shown = {}
    for k, first, last in zip(operation.tolist(), start.tolist(), end.tolist(), strict=True):
        name = result.machine.processors[int(found.device[k])].name
        shown[name] = shown.get(name, 0) + last - first
        assert found.start[k] <= first < last <= found.end[k]
        assert found.phase[k] != Phase.F
    assert shown == wanted
