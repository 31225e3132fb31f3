"""Interactive pages of long schedules: their weight, the time to the first picture, frames while zooming.

``python -m benchmarks.pages`` writes pages of about 10^4 and 10^6 steps and opens them in a headless Chromium;
``--with plotly --with bokeh`` draws the same (memory by kind, what runs) with these libraries, where they are
installed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import remat
from remat.report.page import write_page
from remat.report.palette import LIGHT, OF_KIND, OF_PHASE
from remat.report.views.composition import composition_of
from remat.report.views.kinds import STACKED
from remat.report.views.phases import step_phases
from remat.solving.result import Result
from tests.browser import Browser

STAGES = {"10^4": 3_300, "10^6": 335_000}
FRAMES = 120


def schedule(stages: int) -> Result:
    """Recompute a chain of unequal stages in segments: about three steps a stage."""
    rng = random.Random(0)
    listed = [
        {
            "name": f"block{k // 10}",
            "forward_time": rng.uniform(1, 5),
            "backward_time": rng.uniform(2, 9),
            "output_size": rng.randrange(2**18, 2**21),
            "saved_size": rng.randrange(2**19, 2**22),
            "forward_workspace": rng.randrange(2**20),
        }
        for k in range(stages)
    ]
    document = {
        "schema": "remat.instance/1",
        "kind": "chain",
        "name": f"{stages:,} unequal stages",
        "units": {"time": "ms", "memory": "B"},
        "input_size": 2**20,
        "stages": listed,
        "loss": {"time": 1},
    }
    return remat.solve(document, algorithm="periodic")


def bands(result: Result) -> list[tuple[str, str, Any, Any]]:
    """Return (label, colour, times, upper edge) of each kind of bytes in the first memory, the lowest first."""
    contents = composition_of(result).contents[0]
    upper = contents.sizes[list(STACKED)].cumsum(axis=0)
    return [
        (kind.label, LIGHT[OF_KIND[kind]], contents.time, upper[row])
        for row, kind in enumerate(STACKED)
        if contents.sizes[kind].any()
    ]


def bars(result: Result) -> list[tuple[str, str, Any, Any]]:
    """Return (label, colour, starts, ends) of the steps of each phase."""
    assert result.columns is not None
    assert result.report is not None
    phases = step_phases(result.graph, result.columns, result.report.start)
    found = []
    for phase, role in OF_PHASE.items():
        mine = phases == phase
        if mine.any():
            found.append((phase.label, LIGHT[role], result.report.start[mine], result.report.end[mine]))
    return found


def with_canvas(result: Result, path: Path) -> None:
    """The page of remat."""
    write_page(result, path)


def with_plotly(result: Result, path: Path) -> None:
    """The same pictures with plotly: WebGL lines, filled by kind; steps as thick lines."""
    from plotly import graph_objects  # type: ignore[import-not-found]
    from plotly.subplots import make_subplots  # type: ignore[import-not-found]

    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.85, 0.15])
    for label, colour, times, upper in reversed(bands(result)):
        line = {"color": colour, "width": 0, "shape": "hv"}
        figure.add_trace(
            graph_objects.Scattergl(x=times, y=upper, name=label, fill="tozeroy", fillcolor=colour, line=line), 1, 1
        )
    for label, colour, start, end in bars(result):
        x = np.column_stack((start, end, np.full(len(start), np.nan))).ravel()
        line = {"color": colour, "width": 14}
        figure.add_trace(graph_objects.Scattergl(x=x, y=np.zeros(len(x)), name=label, mode="lines", line=line), 2, 1)
    figure.write_html(path, include_plotlyjs=True)


def with_bokeh(result: Result, path: Path) -> None:
    """The same pictures with bokeh: areas by kind, steps as WebGL rectangles."""
    from bokeh.layouts import column  # type: ignore[import-not-found]
    from bokeh.plotting import figure, output_file, save  # type: ignore[import-not-found]

    output_file(path, mode="inline", title="schedule")
    memory = figure(width=1240, height=320, tools="pan,xwheel_zoom,reset,hover", output_backend="webgl", name="memory")
    for label, colour, times, upper in reversed(bands(result)):
        x, y = np.repeat(times, 2)[1:], np.repeat(upper, 2)[:-1]
        memory.varea(x=x, y1=np.zeros(len(y)), y2=y, color=colour, legend_label=label)
    row = figure(width=1240, height=90, x_range=memory.x_range, output_backend="webgl", tools="pan,xwheel_zoom")
    for _, colour, start, end in bars(result):
        row.quad(left=start, right=end, top=1, bottom=0, color=colour, line_width=0)
    save(column(memory, row))


Writer = Callable[[Result, Path], None]
WRITERS: dict[str, Writer] = {"canvas": with_canvas, "plotly": with_plotly, "bokeh": with_bokeh}

SEEN = {
    "canvas": "document.documentElement.dataset.drawn",
    "plotly": "document.querySelector('.plotly-graph-div')?._fullLayout && document.querySelector('.legendtext') && 1",
    "bokeh": "window.Bokeh?.documents?.[0] && Bokeh.documents[0].is_idle && 1",
}
"""What holds when the first picture is there."""

SHOW = {
    "canvas": "(a, b) => schedule.show(a * schedule.span, b * schedule.span)",
    "plotly": "(a, b) => Plotly.relayout(document.querySelector('.js-plotly-plot'), "
    "{'xaxis.range': [a * SPAN, b * SPAN]})",
    "bokeh": "(a, b) => Bokeh.documents[0].get_model_by_name('memory').x_range.setv({start: a * SPAN, end: b * SPAN})",
}
"""How a stretch of time, as shares, is brought into sight."""

ZOOM = """(async () => {
  const show = %s, took = [], gaps = [];
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
  for (let k = 0, wide = 1, last = performance.now(); k < %d; k++) {
    wide *= k < %d ? 0.9 : 1 / 0.9;
    const begin = performance.now();
    await show(Math.max(0, 0.4 - wide / 2), Math.min(1, 0.4 + wide / 2));
    await frame();
    const now = performance.now();
    took.push(now - begin);
    gaps.push(now - last);
    last = now;
  }
  const sorted = gaps.slice(1).sort((a, b) => a - b), all = sorted.reduce((a, b) => a + b);
  return [sorted[sorted.length >> 1], sorted[Math.floor(sorted.length * 0.95)], sorted.length * 1000 / all];
})()"""


def measured(kind: str, path: Path, span: float, patience: float) -> str:
    """Open a page and zoom; return a row of the table."""
    with Browser(1280, 900) as browser:
        begin = time.perf_counter()
        browser.open(path)
        browser.wait(SEEN[kind], patience)
        first = time.perf_counter() - begin
        frames = min(FRAMES, max(6, int(60 / max(first, 0.01))))
        script = ZOOM % (SHOW[kind].replace("SPAN", repr(span)), frames, frames // 2)
        median, late, rate = browser.run(script)
        heap = browser.run("performance.memory.usedJSHeapSize / 1e6")
        errors = f"; {browser.errors[:2]}" if browser.errors else ""
    return f"{path.stat().st_size / 1e6:8.2f} {first:8.2f} {median:8.1f} {late:8.1f} {rate:8.1f} {heap:8.0f}{errors}"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--with", dest="more", action="append", default=[], choices=["plotly", "bokeh"])
    parser.add_argument("--steps", action="append", choices=list(STAGES))
    parser.add_argument("--patience", type=float, default=200.0)
    asked = parser.parse_args()
    print("steps    with      MB   first s  frame ms     95 %       /s  heap MB  written in CPU s")
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.steps or STAGES:
            result = schedule(STAGES[name])
            assert result.report is not None
            for kind in ("canvas", *asked.more):
                path = Path(folder) / f"{kind}.html"
                begin = time.process_time()
                WRITERS[kind](result, path)
                spent = time.process_time() - begin
                try:
                    row = measured(kind, path, float(result.report.makespan), asked.patience)
                except RuntimeError as error:
                    row = f"{path.stat().st_size / 1e6:8.2f} {error}"
                print(f"{len(result.columns or ()):<9,}{kind:8}{row} {spent:8.1f}", flush=True)


if __name__ == "__main__":
    main()
