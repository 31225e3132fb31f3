"""Plots: what they say, that equal results give equal files, and that they stay small."""

import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import remat
from remat.errors import MissingExtraError, OptionError, RematError
from remat.generate import generate
from remat.report.plot.schedule import COLOURS, MOST_BARS, SLICES, plot
from remat.report.plot.style import wrapped
from remat.report.views.slices import busy_shares, slice_maxima, without_dips
from remat.solving.decisions.words import decision_words
from tests.report.results import CHAIN, chain_result, long_result, offload_result, result_of


def words(path):
    """Every text in an SVG."""
    tree = ElementTree.parse(path)
    return ["".join(text.itertext()).strip() for text in tree.iter("{http://www.w3.org/2000/svg}text")]


@pytest.fixture(scope="module")
def chain():
    return chain_result()


def test_what_a_plot_says(chain, tmp_path):
    path = tmp_path / "plot.svg"
    plot(chain, path)
    said = words(path)
    assert "three stages" in said
    head = next(text for text in said if text.startswith("algorithm rotor"))
    assert f"makespan {chain.makespan} ms" in head
    assert f"overhead {100 * chain.overhead:.1f} %" in head
    assert "budget 6 MiB" in said
    peak = chain.report.peaks["memory"]
    assert any(text.startswith("peak ") and text.endswith(f": {chain.peak_step('memory')}") for text in said)
    assert peak.step is not None
    for label in ("forward", "saving forward", "recomputation", "backward", "loss", "time (ms)", "processor"):
        assert label in said
    assert "copy" not in said
    # The names of the longer tasks fit.
    assert {"B1", "B2", "B3"} <= set(said)


def test_long_names_and_decisions_are_wrapped_and_not_cut(tmp_path):
    """Up to three lines; only what is longer ends in dots."""
    name = "_".join(f"part{k}" for k in range(25))
    stages = [{"forward_time": 1 + k % 3, "backward_time": 2, "output_size": 3, "saved_size": 2} for k in range(60)]
    document = CHAIN | {"name": name, "stages": stages, "units": {"time": "unit", "memory": "unit"}, "input_size": 3}
    result = remat.solve(document, algorithm="rotor", budget="40%")
    for view in ("time", "stages", "convergence"):
        path = tmp_path / f"{view}.svg"
        plot(result, path, view=view)
        said = words(path)
        assert "".join(text for text in said if text.startswith("part")) == name
        decision = next(decision_words(result))
        assert len(decision) > 40
        assert decision in " ".join(said)
        assert not any("..." in text for text in said)


def test_titles_break_at_blanks_and_underscores():
    assert wrapped("one two_three four", 9) == ("one two_", "three", "four")
    assert wrapped("abcdefghij", 4) == ("abcd", "efgh", "ij")
    assert wrapped("ab cd ef gh ij", 5) == ("ab cd", "ef gh", "ij")
    assert wrapped("ab cd ef gh ij kl mn", 5) == ("ab cd", "ef gh", "ij...")
    assert wrapped("", 5) == ()


def test_static_memory_is_split_into_its_parts(tmp_path):
    """Those of the training, and the reserve; a changed instance shows one block."""
    made = generate("chain", "model", config="gpt2", sequence=256, batch=2, optimizer="sgd", reserve=3 * 2**20)
    for document, known in ((made, True), (made | {"static_memory": made["static_memory"] + 1}, False)):
        plot(remat.solve(document, algorithm="rotor", budget="90%"), tmp_path / "plot.svg")
        said = words(tmp_path / "plot.svg")
        parts = [f"parameters {2 * 124_439_808 / 2**20:.4g} MiB", "reserve 3 MiB"]
        parts.append(parts[0].replace("parameters", "gradients"))
        assert set(parts) <= set(said) if known else not set(parts) & set(said)
        assert any(text.startswith("static memory") for text in said) == (not known)
        assert any(text.startswith("activation gradients") for text in said) == known


def test_several_memories_processors_and_channels(tmp_path):
    path = tmp_path / "plot.svg"
    plot(offload_result(), path)
    said = words(path)
    assert r"a <b> & $c$ \n é漢" in said
    assert {"gpu0", "gpu1", "bus", "copy", "recomputation"} <= set(said)
    assert {"device (units)", "host (units)"} <= set(said)
    assert "disk (units)" not in said  # this memory is always empty
    assert "budget 10" in said
    assert "budget 1,000, far above" in said


def test_equal_results_give_equal_files(chain, tmp_path):
    for name in ("plot.svg", "plot.png", "plot.pdf"):
        one, other = tmp_path / name, tmp_path / f"again-{name}"
        plot(chain, one)
        plot(replace(chain, solve_seconds=99.0), other)
        assert one.read_bytes() == other.read_bytes()


def test_a_png_has_the_expected_size(chain, tmp_path):
    path = tmp_path / "PLOT.PNG"
    plot(chain, path)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width == 1650
    assert 500 < height < 2000


def test_a_step_of_no_length_and_an_empty_schedule(tmp_path):
    no_time = CHAIN | {
        "stages": [{"forward_time": 0, "backward_time": 0, "output_size": 0}],
        "loss": {"time": 0},
        "input_size": 0,
    }
    steps = [{"run": "Fe1"}, {"run": "loss"}, {"run": "B1"}]
    plot(result_of(no_time, steps), tmp_path / "plot.svg")
    assert "peak 0 B: initial residency" in words(tmp_path / "plot.svg")
    optional = [{"id": "t", "time": 1, "writes": [], "required": False}]
    nothing = {"schema": "remat.instance/1", "kind": "dag", "tasks": optional}
    plot(result_of(nothing, []), tmp_path / "plot.png")


def test_initial_residency_can_be_the_peak(tmp_path):
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": [{"id": "v", "size": 2**31}],
        "inputs": ["v"],
        "tasks": [{"id": "t", "time": 1, "reads": ["v"], "writes": []}],
    }
    plot(result_of(document, [{"run": "t", "drop": ["v"]}], name=""), tmp_path / "plot.svg")
    said = words(tmp_path / "plot.svg")
    assert "peak 2 GiB: initial residency" in said
    assert "memory (GiB)" in said
    assert "(unnamed)" in said


def test_many_processors_show_the_busiest(tmp_path):
    machine = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m", "count": 30}]}
    tasks = [{"id": f"t{i}", "time": i + 1, "writes": []} for i in range(30)]
    document = {"schema": "remat.instance/1", "kind": "dag", "machine": machine, "tasks": tasks}
    plot(result_of(document, [{"run": f"t{i}", "on": [f"p{i}"]} for i in range(30)]), tmp_path / "plot.svg")
    said = words(tmp_path / "plot.svg")
    assert "p29" in said
    assert "p0" not in said
    assert "6 less busy resources not shown" in said


def test_long_schedules_are_sliced_and_stay_small(tmp_path):
    result = long_result()
    assert len(result.columns) > 10 * MOST_BARS
    for name in ("plot.svg", "plot.png"):
        plot(result, tmp_path / name)
        assert (tmp_path / name).stat().st_size < 1_000_000
    said = words(tmp_path / "plot.svg")
    assert f"{SLICES:,} time slices: maximum of memory, shares of phases" in said
    assert any(text.startswith("peak") for text in said)


def test_what_cannot_be_plotted(chain, tmp_path):
    with pytest.raises(OptionError, match=r"'plot.eps' is not a plot; its name ends in one of .svg, .png, .pdf, .html"):
        plot(chain, "plot.eps")
    with pytest.raises(OptionError, match="no schedule to plot"):
        plot(replace(chain, report=None, columns=None), tmp_path / "plot.svg")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(chain, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"a plot needs an optional package: pip install 'remat\[plot\]'"):
        plot(chain, tmp_path / "plot.svg")


def test_a_plot_that_fails_leaves_the_old_file(chain, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    path = tmp_path / "plot.svg"
    path.write_text("old")

    def fail(self, file, **options):
        file.write(b"half a plot")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(RematError, match="cannot write"):
        plot(chain, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_settings_of_matplotlib_stay_as_they_are(chain, tmp_path):
    import matplotlib

    with matplotlib.rc_context({"font.size": 31.0, "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        plot(chain, tmp_path / "plot.svg")
        assert dict(matplotlib.rcParams) == before
    # The user's settings do not reach the plot, either.
    plot(chain, tmp_path / "again.svg")
    assert (tmp_path / "plot.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()


def test_importing_the_module_does_not_import_matplotlib():
    code = "import sys, remat.report.plot.schedule; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_colours_can_be_told_apart():
    """Adjacent phases differ also in shades of grey, and names on them are readable."""
    lightness = {}
    for phase, colour in COLOURS.items():
        red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
        lightness[phase.label] = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    # Black on it: the contrast of the accessibility guidelines for small text.
    assert all((value + 0.05) / 0.05 >= 4.5 for value in lightness.values())
    assert lightness["forward"] > lightness["saving forward"] + 0.1
    assert lightness["recomputation"] > lightness["backward"] + 0.05


# ------------------------------------------------------------------------------------------------ slices


def test_dips_of_no_length_go_and_peaks_of_no_length_stay():
    time = np.array([0.0, 0, 1, 1, 2, 2, 2, 3])
    size = np.array([5.0, 9, 4, 8, 3, 12, 6, 2])
    shown = without_dips(time, size)
    assert shown[0].tolist() == [0, 1, 2, 2, 3]
    assert shown[1].tolist() == [9, 8, 12, 6, 2]


def test_slices_keep_the_peak():
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = int(rng.integers(1, 200))
        time = np.concatenate(([0.0], np.sort(rng.random(count - 1)) * 10))
        size = rng.integers(0, 1000, count).astype(float)
        edges, highest = slice_maxima(time, size, 10.0, 37)
        assert highest.max() == size.max()
        for k, edge in enumerate(edges):
            begun = np.flatnonzero(time < edge)
            inside = (time >= edge) & (time < edge + 10 / 37)
            held = [size[begun[-1]]] if len(begun) else []
            assert highest[k] == max([*held, *size[inside]])


def test_shares_of_slices():
    start, end = np.array([4, 0, 1]), np.array([10, 1, 2])
    assert busy_shares(start, end, 10.0, 5).tolist() == [1, 0, 1, 1, 1]
    assert busy_shares(start, end, 10.0, 1).tolist() == pytest.approx([0.8])
    assert busy_shares(start, end, 20.0, 4).tolist() == pytest.approx([0.6, 1, 0, 0])
