"""Pictures and tables of sweeps: what they say, and that equal sweeps give equal files."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

import remat
from remat.errors import MissingExtraError, OptionError
from remat.report.text import curve_tables

CHAIN = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "name": "six | stages",
    "units": {"time": "ms", "memory": "B"},
    "input_size": 3 * 2**20,
    "stages": [{"forward_time": 2, "backward_time": 3, "output_size": 3 * 2**20, "saved_size": 2**21, "repeat": 6}],
}


@pytest.fixture(scope="module")
def sweep():
    return remat.sweep(CHAIN, ("rotor", "periodic", "recompute-all"))


def words(path):
    """Every text in an SVG."""
    tree = ElementTree.parse(path)
    return ["".join(text.itertext()).strip() for text in tree.iter("{http://www.w3.org/2000/svg}text")]


def test_what_a_plot_says(sweep, tmp_path):
    pytest.importorskip("matplotlib")
    from remat.report.plot.pareto import COLOURS, plot_sweep

    path = tmp_path / "curves.svg"
    plot_sweep(sweep, path)
    said = words(path)
    assert {"six | stages", "rotor", "periodic", "recompute-all", "peak of memory (MiB)", "overhead"} <= set(said)
    assert "makespan (ms)" in said
    knee = sweep.curves[0].knee
    assert any(text.startswith(f"knee {knee.peak / 2**20:.4g} MiB, +") for text in said)
    assert any(text == f"least {sweep.curves[0].least.size / 2**20:.4g} MiB" for text in said)
    drawn = path.read_text()
    assert all(colour.lower() in drawn for colour in COLOURS[:3])


def test_equal_sweeps_give_equal_files(sweep, tmp_path):
    pytest.importorskip("matplotlib")
    from remat.report.plot.pareto import plot_sweep

    for name in ("one.svg", "one.png"):
        plot_sweep(sweep, tmp_path / name)
        plot_sweep(remat.sweep(CHAIN, ("rotor", "periodic", "recompute-all")), tmp_path / f"again-{name}")
        assert (tmp_path / name).read_bytes() == (tmp_path / f"again-{name}").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"input_size": 0, "stages": [{"forward_time": 0, "backward_time": 0, "output_size": 0}]},
        {"units": {"time": "unit", "memory": "unit"}},
        {"name": "", "static_memory": 2**50},
        {
            "name": "$x^2$ <&>",
            "stages": [
                {"forward_time": 1, "backward_time": 1, "output_size": 2**50},
                {"forward_time": 9**9, "backward_time": 1, "output_size": 1, "repeat": 9},
            ],
        },
    ],
    ids=["nothing", "units", "static", "odd"],
)
def test_odd_sweeps(change, tmp_path):
    pytest.importorskip("matplotlib")
    from remat.report.plot.pareto import plot_sweep

    found = remat.sweep(CHAIN | change, ("rotor", "recompute-all"), points=6)
    plot_sweep(found, tmp_path / "odd.svg")
    assert len(words(tmp_path / "odd.svg")) > 5
    assert curve_tables.sweep_table(found)
    assert curve_tables.sweep_markdown(found)


def test_a_wide_curve_is_logarithmic(tmp_path):
    pytest.importorskip("matplotlib")
    from remat.report.plot.pareto import plot_sweep

    loop = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 400, "units": {"memory": "unit", "time": "unit"}}
    found = remat.sweep(loop, "revolve")
    plot_sweep(found, tmp_path / "loop.svg")
    assert any("10" in text for text in words(tmp_path / "loop.svg"))


def test_what_cannot_be_drawn(sweep, tmp_path, monkeypatch):
    from remat.report.plot.pareto import plot_sweep

    with pytest.raises(OptionError, match=r"'x\.html' is no plot"):
        plot_sweep(sweep, "x.html")
    with pytest.raises(OptionError, match="no curve to plot"):
        plot_sweep(replace(sweep, curves=()), tmp_path / "x.svg")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError):
        plot_sweep(sweep, tmp_path / "x.svg")


def test_tables(sweep):
    text = curve_tables.sweep_table(sweep)
    assert "six | stages, memory memory" in text
    assert "knee" in text
    markdown = curve_tables.sweep_markdown(sweep)
    assert markdown.count("| budget |") == 3
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {row.replace("\\|", "").count("|") for row in rows} == {9}
    values = curve_tables.sweep_csv(sweep)
    assert len(values.splitlines()) == 1 + len(sweep.to_records())
    assert curve_tables.sweep_csv(replace(sweep, curves=())) == ""


def test_remarks():
    """What is known of the end of a curve."""
    given = remat.sweep(CHAIN, "rotor", budgets=["1GB"])
    assert "the least that was found" in curve_tables.remark(given.curves[0], given.units)
    nothing = remat.sweep(CHAIN, "keep-all", budgets=["1GB"], time_limit=0)
    assert curve_tables.remark(nothing.curves[0], nothing.units) == "no schedule was found; incomplete (time limit)"


def test_the_proved_curve():
    """What is proved for a budget holds for less, whoever proved it; no curve goes below it."""
    from remat.report.plot.pareto import lower_bounds

    sweep = remat.sweep(remat.example("lecture_l5"), ("auto", "revolve"))
    found = lower_bounds(sweep)
    times = [time for _, time in found]
    assert times == sorted(times, reverse=True)
    assert times[-1] > 0
    for curve in sweep.curves:
        for point in curve.points:
            if point.budget is not None:
                assert dict(found)[point.budget] <= point.makespan
    assert dict(found)[4] == 13  # proved by auto


def test_a_bound_says_nothing_of_larger_budgets():
    pytest.importorskip("matplotlib")
    from remat.report.plot.pareto import lower_bounds, picture_of_sweep
    from remat.report.plot.style import figure_of

    sweep = remat.sweep(remat.example("lecture_l5"), budgets=[3, 4])
    assert [budget for budget, _ in lower_bounds(sweep)] == [3, 4]
    (bound,) = [
        line for line in figure_of(picture_of_sweep(sweep)).axes[0].get_lines() if line.get_label() == "lower bound"
    ]
    assert max(bound.get_xdata()) == 4
    whole = remat.sweep(remat.example("lecture_l5"), "revolve", budgets=[3])
    unlimited = replace(whole.curves[0].answers[0], budget=None, lower_bound=11)
    curve = replace(whole.curves[0], answers=(*whole.curves[0].answers, unlimited))
    assert lower_bounds(replace(whole, curves=(curve,)))[-1] == (float("inf"), 11)


def test_lines_that_coincide_are_told_apart():
    """The first of two equal curves is the wider one; the texts at their knees stand above each other."""
    pytest.importorskip("matplotlib")
    from remat.report.plot.pareto import picture_of_sweep
    from remat.report.plot.style import figure_of

    sweep = remat.sweep(CHAIN, "rotor")
    sweep = replace(sweep, curves=(*sweep.curves, replace(sweep.curves[0], algorithm="twin")))
    axes = figure_of(picture_of_sweep(sweep)).axes[0]
    widths = {line.get_label(): line.get_linewidth() for line in axes.get_lines()}
    assert widths["rotor"] > widths["twin"]
    assert "lower bound" in widths
    knees = [text.xyann[1] for text in axes.texts if text.get_text().startswith("knee")]
    assert len(knees) == len(set(knees))
