"""Colours of groups in pictures of two schedules of one graph, and names in bars."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import remat
from remat.report.page import page
from remat.report.palette import GROUPS
from remat.report.plot.schedule import FONT_SIZES, PADDING, _fitting, picture
from remat.report.plot.style import figure_of, text_points
from remat.report.views.composition import composition_of
from remat.report.views.groups import MOST_GROUPS, OTHERS

NAMES = ("read", "prep", "left1", "left2", "left3", "right1", "right2", "right3", "join", "write")
READS = {
    "prep": ["read"],
    "left1": ["prep"],
    "left2": ["left1"],
    "left3": ["left2"],
    "right1": ["prep"],
    "right2": ["right1"],
    "right3": ["right2"],
    "join": ["left3", "right3", "read"],
    "write": ["join", "left1"],
}
TIMES = (2, 1, 2, 1, 2, 1, 2, 1, 3, 1)
SIZES = (5, 6, 4, 8, 2, 5, 3, 2, 3, 1)


def graph(capacity):
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "machine": {
            "memories": [{"name": "device", "capacity": capacity}, {"name": "host"}],
            "processors": [{"name": "gpu", "memory": "device"}],
            "links": [
                {"source": "device", "target": "host", "bandwidth": 10},
                {"source": "host", "target": "device", "bandwidth": 10},
            ],
        },
        "tasks": [
            {"id": name, "time": time, "size": size, "reads": READS.get(name, [])}
            for name, time, size in zip(NAMES, TIMES, SIZES, strict=True)
        ],
        "outputs": ["write"],
    }


@pytest.fixture(scope="module")
def results():
    options = {"recompute": True, "work": 0.1}
    return [
        remat.solve(graph(capacity), algorithm="offload-exact", options=options, budget={"device": capacity})
        for capacity in (12, 16)
    ]


def test_a_value_keeps_its_colour_at_another_budget(results):
    found = []
    for result in results:
        groups = composition_of(result, grouped=True).groups
        assert groups.by == "value"
        assert len(set(groups.colours)) == len(groups.labels)
        found.append(dict(zip(groups.labels, groups.colours, strict=True)))
    (one, other), largest = found, sorted(NAMES, key=lambda name: -SIZES[NAMES.index(name)])[:MOST_GROUPS]
    shared = (one.keys() & other.keys()) - {OTHERS}
    assert len(shared) >= 6
    assert set(largest) & shared == {name for name in shared if one[name] == other[name]}
    assert one[OTHERS] == other[OTHERS] == MOST_GROUPS
    assert list(one) != list(other)  # the bands have another order


def test_the_picture_and_the_page_use_these_colours(results):
    for result in results:
        groups = composition_of(result, grouped=True).groups
        figure = figure_of(picture(result))
        texts = {text.get_text().split()[0] for legend in figure.legends for text in legend.get_texts()}
        assert set(groups.labels) <= texts
        handles = {
            text.get_text().split()[0]: handle.get_facecolor()
            for legend in figure.legends
            for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
        }
        for label, colour in zip(groups.labels, groups.colours, strict=True):
            shown = "#" + "".join(f"{round(255 * part):02X}" for part in handles[label][:3])
            assert shown == GROUPS[colour]
        html = page(result)
        for k, colour in enumerate(groups.colours):
            assert f"--group-{k}:{GROUPS[colour]};" in html


def test_copies_with_room_for_a_name_have_one(results):
    figure = figure_of(picture(results[0]))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    rows = figure.axes[-1]
    names = [text for text in rows.texts if text.get_position()[1] > 0.5]  # below the processor
    copies = {name: sum(copied.get_text() == name for copied in names) for name in ("read", "prep", "left1", "right3")}
    assert copies == {"read": 2, "prep": 2, "left1": 2, "right3": 0}  # those of right3 take 0.2 of 17 units
    renderer = canvas.get_renderer()
    for text, other in itertools.combinations([t.get_window_extent(renderer) for t in rows.texts], 2):
        assert not text.overlaps(other)


def test_the_longest_name_that_fits_is_taken_before_a_smaller_font():
    wide, small = (text_points("stage.long", size) for size in FONT_SIZES)
    assert _fitting(("stage.long", "long"), wide + PADDING) == ("stage.long", FONT_SIZES[0])
    assert _fitting(("stage.long", "long"), small + PADDING) == ("long", FONT_SIZES[0])
    assert _fitting(("stage.long",), small + PADDING) == ("stage.long", FONT_SIZES[1])
    assert _fitting(("stage.long", ""), 3.0)[0] == ""
    assert np.isclose(text_points("aa", 8.0), 2 * text_points("a", 8.0), rtol=0.2)
