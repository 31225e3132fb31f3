"""Test the other views of a schedule: content, supported instances, and size."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

pytest.importorskip("matplotlib")

import remat
from remat.errors import OptionError
from remat.plugin.context import Progress
from remat.report import VIEWS
from remat.report.plot.schedule import plot
from remat.report.plot.views import MOST_BOXES, drawing
from remat.report.views.addresses import address_boxes
from remat.report.views.composition import composition_of
from remat.solving.verifying import examine
from tests.report.plot.test_schedule import words
from tests.report.results import CHAIN, chain_result, long_result, offload_result, result_of
from tests.report.views.by_hand import halves, offloaded, reversed_adjoint, spilled_tree

KINDS = {"chain": halves, "adjoint": reversed_adjoint, "dag": offload_result, "tree": spilled_tree}


def said(result, view, tmp_path):
    plot(result, tmp_path / "view.svg", view=view)
    return words(tmp_path / "view.svg")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_for_its_kinds(kind, view, tmp_path):
    made = KINDS[kind]()
    events = [Progress(0.5, 2 * made.makespan, None, "", "one"), Progress(1.5, made.makespan, made.makespan, "", "two")]
    result = replace(made, history=tuple(events))
    result = result.with_addresses(remat.layout(result))
    for suffix in ("svg", "png"):
        path = tmp_path / f"view.{suffix}"
        if kind in VIEWS[view]:
            # They are written alike for all kinds, and images take long.
            first_kind = kind == VIEWS[view][0]
            if suffix == "svg" or first_kind:
                plot(result, path, view=view)
            if first_kind:
                first = path.read_bytes()
                plot(result, path, view=view)
                assert path.read_bytes() == first
        else:
            suited = ", ".join(name for name, kinds in VIEWS.items() if kind in kinds)
            with pytest.raises(OptionError, match=f"{view!r} is not a view of this schedule; it has {suited}"):
                plot(result, path, view=view)
            assert not path.exists()
    with pytest.raises(OptionError, match="'gantt' is not a view"):
        drawing(result, "gantt")
    if view == "convergence":
        with pytest.raises(OptionError, match="'convergence' is not a view"):
            drawing(made, view)
    if view == "addresses":
        with pytest.raises(OptionError, match="has no addresses; `remat layout` writes them"):
            drawing(made, view)


def test_addresses_show_the_arenas(tmp_path):
    made = offload_result()
    for memory in ("device", "host"):
        made = made.with_addresses(remat.layout(made, memory=memory))
    text = said(made, "addresses", tmp_path)
    assert {"address in device (units)", "address in host (units)", "u"} <= set(text)
    assert any("arena of device" in one and "arena of host" in one for one in text)
    boxes = address_boxes(made, composition_of(made).stays, 0)
    assert boxes.arena.size == int(boxes.high.max())
    assert (boxes.begin <= boxes.end).all()
    report = made.report
    for box in range(len(boxes.kind)):
        first, last = int(boxes.first[box]), int(boxes.last[box])
        assert boxes.begin[box] == (0 if first < 0 else report.start[first])
        assert boxes.end[box] == (report.makespan if last == len(report.end) else report.end[last])


def test_many_residencies_become_an_image(tmp_path):
    made = long_result(MOST_BOXES + 100)
    made = made.with_addresses(remat.layout(made, algorithm="best-fit", options={"order": "start"}))
    plot(made, tmp_path / "view.svg", view="addresses")
    assert "<image" in (tmp_path / "view.svg").read_text()


def test_stages_show_kept_and_recomputed_bytes(tmp_path):
    text = said(halves(), "stages", tmp_path)
    assert {"kept 1.5 MiB", "checkpoint 1 MiB", "recomputed 3 MiB", "2 forwards recomputed"} <= set(text)
    assert {"state and saved (MiB)", "forward runs", "stage (0: the input)"} <= set(text)
    text = said(offloaded(), "stages", tmp_path)
    assert {"offloaded 1.5 MiB", "nothing is recomputed"} <= set(text)


def test_stages_of_an_adjoint_are_its_levels(tmp_path):
    text = said(remat.solve(remat.example("three_levels")), "stages", tmp_path)
    assert {"device", "host", "disk", "forward runs", "state"} <= set(text)
    assert any(one.startswith("device: 350 states, ") for one in text)
    assert "disk: 1 state, once each" in text
    text = said(reversed_adjoint(), "stages", tmp_path)
    assert "memory: 1 state, once each" in text


def test_every_view_says_what_fills_the_memory(tmp_path):
    for view in ("values", "stages", "reversal"):
        text = said(halves(), view, tmp_path)
        assert any(re.fullmatch(r"peak of memory [0-9.]+ MiB: .*saved.*", one) for one in text)
    assert "at the peak of memory: checkpoints 1 MiB saved 3 MiB" in " ".join(said(halves(), "time", tmp_path))


def test_stages_of_a_long_chain_share_columns(tmp_path):
    document = CHAIN | {"stages": [CHAIN["stages"][0] | {"repeat": 1000}]}
    text = said(remat.solve(document, algorithm="periodic", budget="400MiB"), "stages", tmp_path)
    assert any(note.endswith("4 stages in a column: sizes added up, most runs") for note in text)


def test_reversal_shows_forwards_and_backwards(tmp_path):
    text = said(halves(), "reversal", tmp_path)
    assert {"state that is kept", "forward", "saving forward", "recomputation", "backward", "state"} <= set(text)
    assert not any(label.startswith("state kept in") for label in text)
    assert {"state kept in host", "state kept in device"} <= set(said(offloaded(), "reversal", tmp_path))


def test_levels_of_an_adjoint_have_a_colour_each_and_their_use(tmp_path):
    result = remat.solve(remat.example("three_levels_n500"), algorithm="h-revolve")
    text = said(result, "reversal", tmp_path)
    assert {"state kept in device", "state kept in host", "state kept in disk", "time (units)"} <= set(text)
    assert "at most 12 of 12 states" in text
    assert "fullest memory host 12 of 12" in text


def test_tree_shows_spilled_nodes(tmp_path):
    text = said(spilled_tree(), "tree", tmp_path)
    assert "spilled: 20 of 100, from 1 of 6 nodes" in text
    assert {"T0", "T1", "T2", "runs first", "last", "depth"} <= set(text)
    text = said(remat.solve(remat.example("random_n200")), "tree", tmp_path)
    assert "200 nodes in core" in text


def test_values_show_their_residencies(tmp_path):
    text = said(offload_result(), "values", tmp_path)
    assert {"forward", "backward", "recomputed", "copied back", "in another memory", "u", "v"} <= set(text)
    assert "2 values, as high as they are large, in order of first appearance" in text


@pytest.mark.slow
def test_what_is_large_is_an_image_and_small(tmp_path):
    nodes = 2 * MOST_BOXES
    tree = {"schema": "remat.instance/1", "kind": "tree", "parent": [(k - 1) // 2 for k in range(nodes)]}
    tree["parent"][0], tree["output_size"] = -1, [1 + k % 7 for k in range(nodes)]
    deep = tree | {"parent": list(range(-1, nodes - 1))}
    adjoint = remat.solve(remat.example("loop_n10000"))
    dag = long_result(2 * MOST_BOXES)
    for result, view in (
        (remat.solve(tree), "tree"),
        (remat.solve(deep), "tree"),
        (adjoint, "reversal"),
        (adjoint, "values"),
        (dag, "values"),
    ):
        path = tmp_path / "view.svg"
        plot(result, path, view=view)
        assert path.stat().st_size < 1_000_000
        tags = [node.tag.rpartition("}")[2] for node in ElementTree.parse(tmp_path / "view.svg").iter()]
        assert ("image" in tags) == (view in ("tree", "values"))


def test_empty_and_timeless(tmp_path):
    no_time = CHAIN | {"stages": [{"forward_time": 0, "backward_time": 0, "output_size": 0}], "input_size": 0}
    chain = result_of(no_time | {"loss": {"time": 0}}, [{"run": "Fe1"}, {"run": "loss"}, {"run": "B1"}])
    for view in ("stages", "reversal", "values"):
        plot(chain, tmp_path / "view.svg", view=view)
    optional = [{"id": "t", "time": 1, "writes": [], "required": False}]
    nothing = result_of({"schema": "remat.instance/1", "kind": "dag", "tasks": optional}, [])
    plot(nothing, tmp_path / "view.svg", view="values")
    root = {"schema": "remat.instance/1", "kind": "tree", "parent": [-1], "output_size": [0]}
    plot(result_of(root, [{"run": "T0"}]), tmp_path / "view.svg", view="tree")


def test_a_saved_schedule_has_the_same_pictures(tmp_path):
    result = chain_result()
    saved = examine(CHAIN, json.loads(json.dumps(result.to_dict()))).as_result()
    for view in ("time", "stages", "reversal", "values"):
        plot(result, tmp_path / "one.svg", view=view)
        plot(saved, tmp_path / "other.svg", view=view)
        # The status is what a solver says: not measured, and so not taken over.
        texts = [
            [text for text in words(tmp_path / f"{name}.svg") if "algorithm" not in text] for name in ("one", "other")
        ]
        assert texts[0] == texts[1]


def test_a_saved_schedule_is_as_optimal_as_its_file_says(tmp_path):
    """With times that have fractions, too, which a reader takes exactly."""
    instance = remat.example("resnet50")
    result = remat.solve(instance, budget="60%")
    assert result.status == "optimal"
    assert result.recompute_time  # so that only the file tells that it is optimal
    assert isinstance(result.makespan, float)
    path = tmp_path / "schedule.json"
    result.save(path)
    again = examine(instance, path).as_result()
    assert (again.status, again.lower_bound) == (result.status, result.lower_bound)
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"makespan": document["makespan"] * 0.99}))
    assert examine(instance, path).as_result().status == "feasible"


def test_a_broken_schedule_has_none():
    with pytest.raises(OptionError, match="breaks rules"):
        examine(CHAIN, {"schema": "remat.schedule/1", "steps": [{"run": "loss"}]}).as_result()
