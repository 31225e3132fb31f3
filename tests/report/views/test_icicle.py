"""Trees as icicles: children below their parents in the order of execution, sizes true, spills counted."""

import json

import numpy as np
import pytest

import remat
from remat.instance.shipped import example_path
from remat.report.views.icicle import icicle_of
from remat.report.views.task_index_ranges import TreeLayout
from tests.report.results import chain_result, offload_result, result_of
from tests.report.views.by_hand import TREE, run, spilled_tree


def icicle(result):
    return icicle_of(result, TreeLayout.of(result.graph))


def test_a_tree_by_hand():
    found = icicle(spilled_tree())
    assert found.depth.tolist() == [0, 1, 1, 2, 2, 2]
    assert found.depths == 3
    assert found.order.tolist() == [5, 4, 1, 2, 3, 0]
    assert found.spilled.tolist() == pytest.approx([0, 0, 2 / 3, 0, 0, 0])
    assert found.volume == 20
    # A hundredth of the mean size more each: nodes without an output are seen, too. Here at least one unit.
    width = np.array([100 + 6, 50 + 3, 40 + 2, 16, 16, 11]) / 106
    assert (found.right - found.left).tolist() == pytest.approx(width.tolist())
    # 2 runs before 1, so it is to the left of it; the remainder is to the left of all children.
    assert found.left[[2, 1]].tolist() == pytest.approx([11 / 106, 53 / 106])
    assert found.right[1] == pytest.approx(1.0)
    assert found.left[4] == pytest.approx(found.right[3])


@pytest.mark.parametrize("name", ["random_n200", "binary_n1000", "caterpillar_n300", "postorder_trap_k3_b3"])
@pytest.mark.parametrize("orientation", ["in", "out"])
def test_children_lie_within_their_parents_side_by_side(name, orientation):
    document = json.loads(example_path(name).read_text("utf-8")) | {"orientation": orientation}
    result = remat.solve(document)
    found, layout = icicle(result), TreeLayout.of(result.graph)
    assert layout.inward == (orientation == "in")
    assert layout.parent.tolist() == list(document["parent"])
    child = np.flatnonzero(layout.parent >= 0)
    above = layout.parent[child]
    near = 1e-9
    assert (found.left[child] >= found.left[above] - near).all()
    assert (found.right[child] <= found.right[above] + near).all()
    assert (found.depth[child] == found.depth[above] + 1).all()
    # Side by side, in the order of execution.
    order = child[np.lexsort((found.order[child], above))]
    same = layout.parent[order[1:]] == layout.parent[order[:-1]]
    assert (found.left[order[1:]][same] >= found.right[order[:-1]][same] - near).all()
    runs_first = found.order[child] < found.order[above]
    assert runs_first.all() if orientation == "in" else not runs_first.any()
    assert found.volume == 0


def test_a_deep_chain_needs_no_recursion():
    nodes = 50_000
    document = TREE | {"parent": list(range(-1, nodes - 1)), "output_size": [1] * nodes}
    found = icicle(remat.solve(document))
    assert found.depths == nodes
    assert (np.diff(found.right - found.left) < 0).all()


def test_one_node_fills_the_width():
    found = icicle(result_of(TREE | {"parent": [-1], "output_size": [0]}, [run(0)]))
    assert (found.left[0], found.right[0], found.depths) == (0.0, 1.0, 1)


def test_other_kinds_are_no_trees():
    assert TreeLayout.of(chain_result().graph) is None
    assert TreeLayout.of(offload_result().graph) is None
