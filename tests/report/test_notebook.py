"""What notebooks show: a few lines, a table, a picture."""

import builtins
import html

import pytest

import remat
from remat.generate import generate
from remat.report.text.summary import summary

LECTURE = remat.example("lecture_l5")


def without(monkeypatch, package):
    real = builtins.__import__

    def refuse(name, *args, **more):
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_a_result_in_a_few_lines():
    result = remat.solve(LECTURE, budget=4)
    assert repr(result).split("\n") == [
        f"lecture_l5 by {result.algorithm}: optimal",
        "  makespan     13",
        "  overhead     +18.2 % over the 11 without recomputation",
        "  peak memory  memory: 4 of 4, set by F5",
        "  lower bound  13, reached",
    ]
    assert result.summary() == summary(result)
    nothing = remat.solve(LECTURE, budget=1)
    assert repr(nothing).startswith("lecture_l5 by auto: infeasible")
    assert len(repr(nothing).split("\n")) <= 5


@pytest.mark.parametrize(
    "made",
    [
        lambda: remat.solve(LECTURE, budget=4),
        lambda: remat.solve(generate("pipeline", "uniform", devices=2, layers=2, micro_batches=2), algorithm="1f1b"),
        lambda: remat.sweep(LECTURE, budgets=[3, 4]),
    ],
)
def test_html_has_the_table_and_the_picture(made, monkeypatch, tmp_path):
    thing = made()
    shown = thing._repr_html_()
    assert shown.count("<pre>") == shown.count("<svg") == 1
    assert shown.startswith('<div class="remat">')
    assert shown.endswith("</svg>\n</div>")
    assert thing.plot(tmp_path / "a.svg") is None
    assert (tmp_path / "a.svg").read_text().count("<svg") == 1
    assert thing.plot().get_axes()
    without(monkeypatch, "matplotlib")
    assert "<svg" not in thing._repr_html_()
    with pytest.raises(remat.MissingExtraError, match="plot"):
        thing.plot()


def test_names_are_no_html():
    document = {
        "schema": "remat.instance/1",
        "kind": "chain",
        "name": "<b>&",
        "input_size": 1,
        "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 1}],
    }
    assert "<b>" not in remat.load(document)._repr_html_()
    assert "<b>" not in remat.solve(document)._repr_html_().partition("<svg")[0]


def test_a_comparison():
    comparison = remat.compare([LECTURE], algorithms=["revolve", "keep-all"])
    assert repr(comparison).split("\n")[0] == "2 cells of 2 algorithms, 2 solved"
    assert "lecture_l5" in comparison._repr_html_()
    with pytest.raises(remat.OptionError, match="in the report"):
        comparison.plot()


def test_instances():
    assert repr(LECTURE) == "AdjointInstance('lecture_l5', length 6)"
    assert "lecture_l5" in LECTURE._repr_html_()
    huge = remat.load({"schema": "remat.instance/1", "kind": "adjoint", "steps": 10**6})
    assert huge._repr_html_() == f'<div class="remat"><pre>{html.escape(repr(huge))}</pre></div>'


def test_frames(monkeypatch):
    pandas = pytest.importorskip("pandas")
    result = remat.solve(LECTURE, budget=4)
    frame = result.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["kind", "start", "what", "where"]
    assert len(frame) == len(result.steps)
    assert len(remat.sweep(LECTURE, budgets=[3, 4]).frame()) == 2
    without(monkeypatch, "pandas")
    with pytest.raises(remat.RematError, match="pip install pandas"):
        result.frame()
