from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import product
from typing import Any

import pytest

from remat.generate.tree import (
    binary_tree,
    caterpillar_tree,
    chain_tree,
    complete_tree,
    postorder_trap,
    random_tree,
    star_tree,
)

Generator = Callable[..., dict[str, Any]]
SHAPES: dict[str, Generator] = {
    "recursive": random_tree,
    "prufer": lambda **parameters: random_tree(method="prufer", **parameters),
    "bounded": lambda **parameters: random_tree(max_children=3, **parameters),
    "binary": binary_tree,
    "complete": complete_tree,
    "chain": chain_tree,
    "star": star_tree,
    "caterpillar": caterpillar_tree,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 10, 257])
def test_children_come_first_and_the_root_last(shape: str, nodes: int) -> None:
    made = SHAPES[shape](nodes=nodes)
    parent = made["parent"]
    assert len(parent) == len(made["output_size"]) == len(made["time"]) == nodes
    assert parent[-1] == -1
    assert all(node < above < nodes for node, above in enumerate(parent[:-1]))


def test_shapes_have_their_parents() -> None:
    assert chain_tree(nodes=4)["parent"] == [1, 2, 3, -1]
    assert star_tree(nodes=4)["parent"] == [3, 3, 3, -1]
    assert complete_tree(nodes=7)["parent"] == [4, 4, 5, 5, 6, 6, -1]
    assert complete_tree(nodes=5, arity=4)["parent"] == [4, 4, 4, 4, -1]
    assert caterpillar_tree(nodes=7, legs=2)["parent"] == [3, 3, 3, 6, 6, 6, -1]
    assert caterpillar_tree(nodes=4, legs=0)["parent"] == [1, 2, 3, -1]


@pytest.mark.parametrize(("made", "most"), [(binary_tree(nodes=500), 2), (random_tree(nodes=500, max_children=4), 4)])
def test_children_are_bounded(made: dict[str, Any], most: int) -> None:
    assert max(Counter(made["parent"]).values()) == most


def test_pruefer_sequences_give_every_labelled_tree_alike() -> None:
    # 16 labelled trees on 4 nodes: 4 stars and 12 paths. Rooted at their last node, a star is a fork with
    # probability 1/4 (else a spoon), a path hangs by an end with probability 1/2.
    shapes = Counter(tuple(random_tree(nodes=4, method="prufer", seed=seed)["parent"]) for seed in range(4000))
    star, chain = shapes[(3, 3, 3, -1)], shapes[(1, 2, 3, -1)]
    assert 1 / 16 - 0.015 < star / 4000 < 1 / 16 + 0.015
    assert 6 / 16 - 0.03 < chain / 4000 < 6 / 16 + 0.03


def test_figures_stay_in_their_ranges() -> None:
    made = random_tree(
        nodes=2000, min_output=3, max_output=6, max_workspace=2, min_time=4, max_time=5, zero_probability=0.25
    )
    assert set(made["output_size"]) == {0, 3, 4, 5, 6}
    assert set(made["workspace"]) == {0, 1, 2}
    assert set(made["time"]) == {4, 5}
    assert 400 < made["output_size"].count(0) < 600


def test_what_has_its_default_is_left_out() -> None:
    plain = star_tree(nodes=3, min_time=1, max_time=1)
    assert "workspace" not in plain
    assert "time" not in plain
    assert "orientation" not in plain
    assert star_tree(nodes=3, orientation="out")["orientation"] == "out"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_seed_determines_the_tree(shape: str) -> None:
    assert SHAPES[shape](nodes=60, seed=5) == SHAPES[shape](nodes=60, seed=5)
    assert SHAPES[shape](nodes=60, seed=5)["output_size"] != SHAPES[shape](nodes=60, seed=6)["output_size"]


@pytest.mark.parametrize("shape", ["prufer", "bounded", "chain", "star"])
def test_large_trees_need_no_recursion(shape: str) -> None:
    made = SHAPES[shape](nodes=10**5)
    assert len(made["parent"]) == 10**5


def children_of(parent: list[int]) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in parent]
    for node, above in enumerate(parent[:-1]):
        children[above].append(node)
    return children


def best_postorder_peak(made: dict[str, Any]) -> int:
    """Liu 1986: children by non-increasing peak minus output."""
    output: list[int] = made["output_size"]
    peak: list[int] = []
    for node, below in enumerate(children_of(made["parent"])):
        held, most = 0, 0
        for child in sorted(below, key=lambda c: output[c] - peak[c]):
            most = max(most, held + peak[child])
            held += output[child]
        peak.append(max(most, held + output[node]))
    return peak[-1]


def optimal_peak(made: dict[str, Any]) -> int:
    """Search over the sets of finished tasks, lowest peak first."""
    parent, output = made["parent"], made["output_size"]
    children = children_of(parent)
    everything = (1 << len(parent)) - 1
    queue, seen = [(0, 0)], set()
    while queue:
        peak, done = heappop(queue)
        if done == everything:
            return peak
        if done in seen:
            continue
        seen.add(done)
        held = sum(
            output[v] for v in range(len(parent)) if done >> v & 1 and not (parent[v] >= 0 and done >> parent[v] & 1)
        )
        for v, below in enumerate(children):
            if not done >> v & 1 and all(done >> c & 1 for c in below):
                heappush(queue, (max(peak, held + output[v]), done | 1 << v))
    raise AssertionError


@pytest.mark.parametrize(("depth", "branches"), list(product((1, 2, 3, 4), (2, 3, 5))))
def test_trap_post_order_is_the_published_figure(depth: int, branches: int) -> None:
    memory, epsilon = 60 * branches, 1
    made = postorder_trap(depth=depth, branches=branches, memory=memory, epsilon=epsilon)
    assert best_postorder_peak(made) == memory + epsilon + depth * (branches - 1) * memory // branches
    assert made["output_size"][-1] == 0
    assert all(node < above for node, above in enumerate(made["parent"][:-1]))


@pytest.mark.parametrize(("depth", "branches", "nodes"), [(1, 2, 7), (1, 3, 10), (2, 2, 21)])
def test_trap_optimum_is_the_published_figure(depth: int, branches: int, nodes: int) -> None:
    memory, epsilon = 120 * branches, 2
    made = postorder_trap(depth=depth, branches=branches, memory=memory, epsilon=epsilon)
    assert len(made["parent"]) == nodes
    assert optimal_peak(made) == memory + epsilon + depth * (branches - 1) * epsilon


@pytest.mark.parametrize(
    ("generator", "parameters", "message"),
    [
        (random_tree, {"nodes": 0}, "nodes must be at least 1, not 0"),
        (random_tree, {"nodes": 10**8}, "nodes must be at most 10,000,000, not 100000000"),
        (random_tree, {"method": "prüfer"}, "method must be one of recursive, prufer, not 'prüfer'.*did you mean"),
        (random_tree, {"method": "prufer", "max_children": 2}, "max_children is for method recursive"),
        (complete_tree, {"arity": 0}, "arity must be at least 1, not 0"),
        (caterpillar_tree, {"legs": -1}, "legs must be at least 0, not -1"),
        (star_tree, {"orientation": "up"}, "orientation must be one of in, out, not 'up'"),
        (star_tree, {"min_output": 2000}, "min_output 2000 is above max_output 1000"),
        (star_tree, {"max_output": 2**61}, "lower max_output, max_workspace or nodes"),
        (star_tree, {"seed": "x"}, "seed must be a whole number, not 'x'"),
        (postorder_trap, {"memory": 100}, "memory 100 is not a multiple of branches 3; take 102"),
        (postorder_trap, {"depth": 30}, "depth and branches give a tree whose node count must be at most 10,000,000"),
    ],
)
def test_errors_name_parameter_figure_and_remedy(
    generator: Generator, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        generator(**parameters)


def test_a_misspelt_parameter_is_refused() -> None:
    with pytest.raises(TypeError, match="max_outputs"):
        star_tree(nodes=3, max_outputs=4)
