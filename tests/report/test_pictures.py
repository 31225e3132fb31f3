"""Test five pictures in a browser: each shows the peak, its time and cause, and the distance to the budget.

Screenshots are kept in the folder that REMAT_TEST_PICTURES names.
"""

import os
import re
from pathlib import Path

import pytest

import remat
from remat.comparing.report.page import page as report
from remat.units import format_size, format_time
from tests.browser import Browser, needs_browser

pytestmark = needs_browser

WRITTEN = """(() => {
  const found = [], pen = CanvasRenderingContext2D.prototype, write = pen.fillText;
  pen.fillText = function (text, ...more) { found.push(String(text)); return write.call(this, text, ...more); };
  schedule.draw();
  pen.fillText = write;
  return found;
})()"""
"""Every text that a page of a schedule draws."""


@pytest.fixture(scope="module")
def browser():
    with Browser(1280, 1100) as started:
        yield started


@pytest.fixture
def folder(tmp_path):
    kept = os.environ.get("REMAT_TEST_PICTURES")
    chosen = Path(kept) if kept else tmp_path
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


def shown(browser, folder, name, result):
    """Open the page of a result, keep a picture of it, and return what it says: on the canvas, and elsewhere."""
    result.plot(folder / f"{name}.html")
    browser.open(folder / f"{name}.html")
    browser.wait("document.documentElement.dataset.ready")
    browser.settle()
    browser.picture(folder / f"{name}.png")
    assert browser.errors == []
    return browser.run(WRITTEN), browser.run("document.body.innerText")


def test_the_page_of_a_task_graph_shows_its_peak(browser, folder):
    result = remat.solve(remat.example("gpt2_small_step"), budget="500MiB", algorithm="dag-auto")
    drawn, text = shown(browser, folder, "graph", result)
    free = 500 * 2**20 - result.peak_memory["memory"]
    peak = result.report.peaks["memory"]
    when = format_time(result.report.start[peak.step], result.units)
    assert f"peak 499.8 MiB at {when}, {format_size(free)} below the budget: softmax.dX" in drawn
    assert "budget 500 MiB" in drawn
    assert {"softmax", "loss", "head"} <= set(drawn)  # names on the largest bands
    assert any("98.16 MiB, gradients, waits for head.dX" in said for said in drawn)
    assert "At the peak of memory" in text
    assert f"peak of memory 499.8 MiB of 500 MiB (99.9 %) at {when}, during softmax.dX" in text
    assert "of the time of all runs" in text
    assert "at the peak of memory, by part of the program:" in text
    # The values at the peak are those of the verifier's replay.
    rows = browser.run("[...document.querySelectorAll('#residents tr')].map(row => row.cells[0].innerText)")
    assert rows[:3] == ["softmax", "loss.dX", "softmax.dX"]


def test_the_page_of_a_chain_shows_its_peak(browser, folder):
    result = remat.solve(remat.example("gpt2_xl_b4"), budget="27GiB", algorithm="rotor")
    drawn, text = shown(browser, folder, "chain", result)
    assert any(said.startswith("peak ") and " below the budget: " in said for said in drawn)
    assert "budget 27 GiB" in drawn
    assert {"parameters", "optimizer states", "gradients", "saved"} <= set(drawn)
    assert "static memory" in text  # no value, but most of what lies there
    assert "recomputation" in text
    assert "idle" in text


def test_the_page_of_a_pipeline_shows_its_devices(browser, folder):
    result = remat.solve(remat.example("uniform_p4_m8"), algorithm="zb-v", budget=16)
    drawn, text = shown(browser, folder, "pipeline", result)
    assert {str(batch) for batch in range(8)} <= set(drawn)
    assert drawn.count("budget 16") == 4
    assert sum(said.startswith("peak 16 at ") and ", all of the budget: " in said for said in drawn) == 4
    assert any(said.endswith(" all of the budget: forward of layer 8, micro-batch 0 (Fe8.0)") for said in drawn)
    assert "fullest memory gpu0 16 of 16 (100.0 %) at " in text
    for label in ("forward", "input gradient", "weight gradient", "idle"):
        assert label in text


@pytest.mark.slow
def test_the_page_of_an_adjoint_shows_its_levels(browser, folder):
    result = remat.solve(remat.example("seismic_ram_disk"), algorithm="h-revolve")
    drawn, text = shown(browser, folder, "adjoint", result)
    for name, peak in result.report.peaks.items():
        when = format_time(result.report.start[peak.step], result.units)
        assert any(said.startswith(f"peak {format_size(peak.size)} at {when}") for said in drawn)
        assert re.search(rf"\n{name}: {format_size(peak.size)}.* at {when}, during .*", text)
    assert "peak 48 GiB at " in " ".join(drawn)
    assert "fullest memory ram 48 GiB of 48 GiB (100.0 %) at " in text
    assert {"ram", "disk", "checkpoints"} <= set(drawn)


@pytest.mark.slow
def test_the_page_of_a_comparison_shows_its_schedules(browser, folder):
    compared = remat.compare(
        [remat.example("random_l30"), remat.example("resnet50")],
        algorithms=["rotor", "periodic"],
        budgets=["50%", "100%"],
        pictures=True,
        jobs=1,
    )
    (folder / "comparison.html").write_text(report(compared))
    browser.open(folder / "comparison.html")
    browser.settle()
    browser.picture(folder / "comparison.png")
    text = browser.run("document.body.innerText")
    assert browser.errors == []
    assert "Mean makespan over the best on the " in text
    assert "that both algorithms solved" in text
    assert text.index("RANKING" if "RANKING" in text else "Ranking") < text.index("Performance profile")
    assert "50% = " in text
    assert not browser.run("document.getElementById('words').open")
