"""Views in notebooks: a few lines, a table, a picture."""

import builtins
import html
import re

import pytest

import remat
from remat.generate import generate
from remat.report import notebook
from remat.report.text.summary import summary
from tests.browser import Browser, needs_browser

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


@pytest.mark.parametrize(("budget", "shown", "other"), [("25MB", " MB)", "MiB)"), ("24MiB", " MiB)", " MB)")])
def test_sizes_have_the_unit_of_the_budget_as_on_the_command_line(budget, shown, other):
    stage = {"forward_time": "1ms", "backward_time": "2ms", "output_size": "3MB", "saved_size": "4MB", "repeat": 4}
    chain = {"schema": "remat.instance/1", "kind": "chain", "input_size": "1MB", "stages": [stage]}
    result = remat.solve(chain, algorithm="rotor", budget=budget)
    for text in (result.summary(), result._repr_html_()):
        told = [line for line in text.splitlines() if line.strip().startswith("keep the activations")]
        assert told
        assert all(line.endswith(shown) and other not in line for line in told)


@pytest.mark.parametrize(
    "made",
    [
        lambda: remat.solve(LECTURE, budget=4),
        lambda: remat.solve(generate("pipeline", "uniform", devices=2, layers=2, micro_batches=2), algorithm="1f1b"),
        lambda: remat.sweep(LECTURE, budgets=[3, 4]),
    ],
)
def test_html_has_the_table_and_the_page(made, monkeypatch, tmp_path):
    thing = made()
    shown = thing._repr_html_()
    assert shown.startswith('<div class="remat" style="max-width:100%">')
    assert html.escape(repr(thing)) in shown
    assert html.escape(thing.summary()) in shown
    document = html.unescape(re.search(r'<iframe sandbox="allow-scripts"[^>]* srcdoc="([^"]*)"', shown)[1])
    thing.plot(tmp_path / "a.html")
    assert document == (tmp_path / "a.html").read_text()
    assert thing.plot(tmp_path / "a.svg") is None
    assert (tmp_path / "a.svg").read_text().count("<svg") == 1
    assert thing.plot().get_axes()
    without(monkeypatch, "matplotlib")
    assert thing._repr_html_() == shown
    monkeypatch.setattr(notebook, "MOST_LETTERS", 100)
    assert not {"<svg", "<iframe"} & set(re.findall("<[a-z]+", thing._repr_html_()))
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
    assert "<b>" not in remat.solve(document)._repr_html_()


def test_a_page_that_is_too_large_is_a_picture(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(notebook, "MOST_LETTERS", 100)
    shown = remat.solve(LECTURE, budget=4)._repr_html_()
    assert '<svg style="max-width:100%;height:auto"' in shown
    assert "<iframe" not in shown


@needs_browser
def test_a_cell_is_as_wide_as_it_is_and_interactive(tmp_path):
    results = [remat.solve(LECTURE, budget=4), remat.sweep(LECTURE, budgets=[3, 4])]
    cells = "".join(f"<div style='width:100%'>{thing._repr_html_()}</div>" for thing in results)
    (tmp_path / "notebook.html").write_text(f"<!doctype html><html><body>{cells}</body></html>")
    with Browser() as browser:
        for width in (1200, 520):
            browser.resize(width, 900)
            browser.open(tmp_path / "notebook.html")
            browser.settle()
            assert browser.run("document.documentElement.scrollWidth") <= width
            wide = browser.run("[...document.querySelectorAll('iframe')].map(one => one.getBoundingClientRect().width)")
            assert len(wide) == 2
            assert all(0.9 * width - 20 <= one <= width for one in wide)
            assert browser.errors == []


def test_comparisons_are_shown_in_notebooks():
    comparison = remat.compare([LECTURE], algorithms=["revolve", "keep-all"])
    assert repr(comparison).split("\n")[0] == "2 cells of 2 algorithms, 2 solved"
    shown = comparison._repr_html_()
    assert "<iframe" in shown
    assert html.escape(comparison.summary()) in shown
    with pytest.raises(remat.OptionError, match="in the report"):
        comparison.plot()


def test_instances_are_shown_in_notebooks():
    assert repr(LECTURE) == "AdjointInstance('lecture_l5', length 6)"
    assert "lecture_l5" in LECTURE._repr_html_()
    huge = remat.load({"schema": "remat.instance/1", "kind": "adjoint", "steps": 10**6})
    assert html.escape(repr(huge)) in huge._repr_html_()
    assert len(huge._repr_html_()) < 300


def test_results_become_data_frames(monkeypatch):
    pandas = pytest.importorskip("pandas")
    result = remat.solve(LECTURE, budget=4)
    frame = result.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["kind", "start", "what", "where"]
    assert len(frame) == len(result.steps)
    assert len(remat.sweep(LECTURE, budgets=[3, 4]).to_frame()) == 2
    with pytest.warns(DeprecationWarning, match="to_frame"):
        assert len(result.frame()) == len(frame)
    without(monkeypatch, "pandas")
    with pytest.raises(remat.RematError, match="pip install pandas"):
        result.to_frame()
