"""Pictures and tables of sweeps: what they say, and that equal sweeps give equal files."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

import remat
from remat.errors import MissingExtraError, OptionError
from remat.report.text import curve_tables
from remat.report.views.curves import label_of, lower_bounds, ratio_ticks, usual_top
from tests.browser import Browser, needs_browser

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
    from remat.report.plot.pareto import plot_sweep
    from remat.report.views.curves import COLOURS

    path = tmp_path / "curves.svg"
    plot_sweep(sweep, path)
    said = words(path)
    assert {"six | stages", "rotor", "periodic", "recompute-all", "peak of memory (MiB)", "overhead"} <= set(said)
    assert "makespan (ms)" in said
    knee = sweep.curves[0].knee
    assert any(text.startswith(f"knee {knee.peak / 2**20:.4g} MiB, +") for text in said)
    assert any(text == f"minimum {sweep.curves[0].least.size / 2**20:.4g} MiB" for text in said)
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
def test_odd_sweeps_are_drawn(change, tmp_path):
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
    said = words(tmp_path / "loop.svg")
    assert {"5", "10", "20", "50"} <= set(said)  # no powers of ten
    assert not any("10^" in text or "times" in text for text in said)


@pytest.mark.parametrize(
    ("times", "top"),
    [
        ([77, 14, 14, 13, 13, 12, 11, 10], 14),  # median 3.5 above the reference: 77 is an outlier, 14 is not
        ([77, 70, 14, 13, 13, 12, 11, 10], 14),
        ([77, 70, 60, 14, 13, 12, 11, 10], 77),  # too many to leave out
        ([77, 30, 14, 13, 13, 12, 11, 10], 77),  # a way up to it
        ([17, 14, 14, 13, 13, 12, 11, 10], 17),
        ([77, 10, 10], 77),  # nothing above the reference to compare with
        ([10], 10),
    ],
)
def test_few_outliers_do_not_flatten_a_curve(times, top):
    assert usual_top(times, 10) == top


def with_outlier():
    """A sweep whose tightest point takes sixty times as long."""
    found = remat.sweep(CHAIN | {"name": "long_name_" * 8}, "rotor")
    (curve,) = found.curves
    answers = list(curve.answers)
    slowest = max(answers, key=lambda answer: answer.makespan or 0)
    place = answers.index(slowest)
    answers[place] = replace(slowest, makespan=60 * slowest.makespan, overhead=60 * (1 + slowest.overhead) - 1)
    return replace(found, curves=(replace(curve, answers=tuple(answers)),))


def test_an_outlier_is_a_number_at_the_edge_and_a_long_name_is_wrapped(tmp_path):
    pytest.importorskip("matplotlib")
    from remat.report.plot.pareto import plot_sweep

    found = with_outlier()
    slowest = max(found.curves[0].points, key=lambda point: point.makespan)
    plot_sweep(found, tmp_path / "outlier.svg")
    said = words(tmp_path / "outlier.svg")
    (arrow,) = [text for text in said if text.startswith("↑")]
    assert arrow == f"↑ {slowest.makespan / 1000:.5g} s, +{100 * slowest.overhead:,.1f} %"
    ticks = [float(text) for text in said if text.replace(".", "").isdigit()]
    assert max(ticks) < slowest.makespan / 10
    assert "".join(text for text in said if text.startswith("long_name")) == "long_name_" * 8


@needs_browser
def test_an_outlier_is_a_number_in_the_page_too(tmp_path):
    with_outlier().plot(tmp_path / "outlier.html")
    with Browser() as browser:
        browser.open(tmp_path / "outlier.html")
        browser.wait("document.documentElement.dataset.drawn")
        head = browser.run("JSON.parse(document.getElementById('head').textContent)")
        slowest = max(time for _, time in head["curves"][0]["points"])
        assert head["top"] < slowest / 10
        assert browser.errors == []


def test_ticks_of_wide_axes_are_round():
    assert ratio_ticks(1.4, 9, binary=True) == [1.5, 2, 3, 4, 6, 8]
    assert ratio_ticks(0.24, 40, binary=True) == [0.25, 0.5, 1, 2, 4, 8, 16, 32]
    assert ratio_ticks(3, 60, binary=False) == [5, 10, 20, 50]
    for low, high in ((1e-3, 1e9), (1, 1 + 1e-6), (2**30, 2**60)):
        for binary in (False, True):
            found = ratio_ticks(low, high, binary=binary)
            assert len(found) <= 8
            assert all(low * 0.999 <= tick <= high * 1.001 for tick in found)


def test_the_key_names_who_answered(tmp_path):
    pytest.importorskip("matplotlib")
    from remat.report.plot.pareto import plot_sweep

    sweep = remat.sweep(remat.example("lecture_l5"), ("auto", "revolve"), budgets=[3, 4])
    finders = list(dict.fromkeys(point.algorithm for point in sweep.curves[0].points))
    assert finders != ["auto"]
    assert label_of(sweep.curves[0]) == f"auto ({', '.join(finders[:2])})"
    assert label_of(sweep.curves[1]) == "revolve"
    plot_sweep(sweep, tmp_path / "x.svg")
    assert {label_of(curve) for curve in sweep.curves} <= set(words(tmp_path / "x.svg"))


def test_a_sweep_has_a_page(sweep, tmp_path):
    """A sweep's page has curves, figures of each point and tables, without external files or matplotlib."""
    sweep.plot(tmp_path / "one.html")
    text = (tmp_path / "one.html").read_text()
    assert not re.search(r"https?://|src=", text)
    head = json.loads(re.search(r'id="head">(.*?)</script>', text)[1])
    assert [curve["name"] for curve in head["curves"]] == ["rotor", "periodic", "recompute-all"]
    for curve, drawn in zip(sweep.curves, head["curves"], strict=True):
        assert drawn["points"] == [[point.peak, point.makespan] for point in curve.points]
        assert len(drawn["texts"]) == len(drawn["points"])
    assert text.count("<table>") == 3
    assert "six | stages" in text
    with pytest.raises(OptionError, match="no curve to plot"):
        replace(sweep, curves=()).plot(tmp_path / "two.html")


@needs_browser
def test_the_page_of_a_sweep_in_a_browser(sweep, tmp_path):
    sweep.plot(tmp_path / "one.html")
    with Browser() as browser:
        browser.open(tmp_path / "one.html")
        browser.wait("document.documentElement.dataset.drawn")
        x, y = browser.run(
            "(() => { const b = document.getElementById('curves').getBoundingClientRect();"
            " return [b.left + b.width * 0.8, b.top + 100]; })()"
        )
        browser.mouse("mouseMoved", x, y)
        browser.settle()
        tip = browser.run("document.getElementById('tip').innerText")
        assert tip.startswith("within ")
        assert "rotor: " in tip
        # The best point within a budget is the last one that fits.
        peaks = [point.peak for point in sweep.curves[0].points]
        for budget in (peaks[0] - 1, peaks[0], peaks[-1] - 1, peaks[-1] + 5):
            assert browser.run(f"curves.within({budget})[0]") == sum(peak <= budget for peak in peaks) - 1
        browser.resize(420, 800)
        assert browser.run("document.documentElement.scrollWidth") == 420
        # The table keeps its headings; it has no words of the table of values at a peak.
        assert browser.run("document.querySelector('thead').offsetHeight") > 0
        before = "getComputedStyle(document.querySelector('tbody td:nth-child(5)'), '::before').content"
        assert browser.run(before) == "none"
        assert browser.errors == []


def test_what_cannot_be_drawn(sweep, tmp_path, monkeypatch):
    from remat.report.plot.pareto import plot_sweep

    with pytest.raises(OptionError, match=r"'x\.gif' is not a plot"):
        plot_sweep(sweep, "x.gif")
    with pytest.raises(OptionError, match="no curve to plot"):
        plot_sweep(replace(sweep, curves=()), tmp_path / "x.svg")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError):
        plot_sweep(sweep, tmp_path / "x.svg")


def test_tables_have_the_curves(sweep):
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


def test_remarks_describe_the_end_of_a_curve():
    """Remarks on the proof at the end of a curve."""
    given = remat.sweep(CHAIN, "rotor", budgets=["1GB"])
    assert "the least that was found" in curve_tables.remark(given.curves[0], given.units)
    nothing = remat.sweep(CHAIN, "keep-all", budgets=["1GB"], time_limit=0)
    assert curve_tables.remark(nothing.curves[0], nothing.units) == "no schedule was found; incomplete (time limit)"


def test_no_curve_is_below_the_proved_bounds():
    """A bound proved for a budget holds for smaller ones, for every algorithm; no curve is below it."""
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
    from remat.report.plot.pareto import picture_of_sweep
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
