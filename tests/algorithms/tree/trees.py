"""Trees for the tests of traversals: from reference files, from a seed, and figures along an order."""

import json
import random

import numpy as np

from remat_algorithms.tree.tree_arrays import TaskTree
from tests import places

REFERENCE = places.REFERENCE


def reference(name):
    return json.loads((REFERENCE / f"{name}.json").read_text())


def document(parent, size, workspace=None, **more):
    head = {"schema": "remat.instance/1", "kind": "tree", "units": {"time": "unit", "memory": "unit"}}
    weights = {"workspace": list(workspace)} if workspace is not None else {}
    return head | {"parent": list(parent), "output_size": list(size)} | weights | more


def tree(parent, size, workspace=None):
    arrays = (parent, size, [0] * len(parent) if workspace is None else workspace)
    return TaskTree.from_arrays(*(np.array(array, dtype=np.int64) for array in arrays))


def random_parents(draw, nodes, reach):
    """Attach each node to one of the `reach` before it, then shuffle the numbers."""
    above = [-1] + [draw.randint(max(0, node - reach), node - 1) for node in range(1, nodes)]
    label = draw.sample(range(nodes), nodes)
    parent = [-1] * nodes
    for node, p in enumerate(above):
        parent[label[node]] = -1 if p < 0 else label[p]
    return parent


def random_weights(seed, *, largest):
    """Return (parent, size, workspace) of up to `largest` nodes, with many ties and zeros."""
    draw = random.Random(seed)
    nodes = draw.randint(1, largest)
    parent = random_parents(draw, nodes, draw.choice([1, 2, 5, largest]))
    most = draw.choice([1, 3, 10, 1000, 2**40])
    idle = draw.random()
    size = [draw.randint(0, most) for _ in range(nodes)]
    workspace = [0 if draw.random() < idle else draw.randint(0, most) for _ in range(nodes)]
    return parent, size, workspace


def simulate(parent, size, workspace, order):
    """Return the peak of an in-tree's order, step by step, and check that children come first."""
    held = highest = 0
    ran = set()
    for node in order:
        children = [child for child, above in enumerate(parent) if above == node]
        assert ran.issuperset(children)
        ran.add(node)
        highest = max(highest, held + workspace[node] + size[node])
        held += size[node] - sum(size[child] for child in children)
    assert len(ran) == len(order) == len(parent)
    return highest


def is_postorder(parent, order):
    """Whether each subtree runs without interruption."""
    place = {node: at for at, node in enumerate(order)}
    count = dict.fromkeys(order, 1)
    earliest = dict(place)
    for node in order:  # children first
        above = parent[node]
        if above >= 0:
            count[above] += count[node]
            earliest[above] = min(earliest[above], earliest[node])
    return all(place[node] - earliest[node] + 1 == count[node] for node in order)
