"""Elimination trees, column counts, orderings and assembly trees against a symbolic factorisation written out."""

from __future__ import annotations

import random

import pytest

from remat.generate.grid import dissection
from remat.generate.sparse.assembly import Storage, assembly_tree
from remat.generate.sparse.etree import column_counts, elimination_tree, postorder, postordered
from remat.generate.sparse.ordering import ORDERINGS, nested_dissection
from remat.generate.sparse.pattern import Pattern, pattern_of


def drawn(seed: int, most: int = 25) -> Pattern:
    rng = random.Random(seed)
    n = rng.randint(1, most)
    entries = rng.randint(0, 2 * n)
    return pattern_of(n, [rng.randrange(n) for _ in range(entries)], [rng.randrange(n) for _ in range(entries)])


def factor(pattern: Pattern) -> list[set[int]]:
    """The rows below the diagonal of each column of the factor, by elimination."""
    adjacent = [set(row) for row in pattern.lists()]
    below = []
    for j in range(len(pattern)):
        column = {i for i in adjacent[j] if i > j}
        below.append(column)
        for i in column:
            adjacent[i] |= column - {i}
    return below


def mesh(nx: int, ny: int) -> Pattern:
    edges = [(x + nx * y, x + 1 + nx * y) for y in range(ny) for x in range(nx - 1)]
    edges += [(x + nx * y, x + nx * (y + 1)) for y in range(ny - 1) for x in range(nx)]
    return pattern_of(nx * ny, [a for a, _ in edges], [b for _, b in edges])


def test_patterns_are_symmetric_without_repeats() -> None:
    pattern = pattern_of(3, [0, 0, 2, 1, 1], [1, 1, 0, 0, 1])
    assert pattern.lists() == [[1, 2], [0], [0]]
    assert pattern.entries == 5
    assert pattern.permuted([2, 1, 0]).lists() == [[2], [2], [0, 1]]


@pytest.mark.parametrize("seed", range(150))
def test_tree_and_counts_equal_the_factor(seed: int) -> None:
    pattern = drawn(seed)
    below = factor(pattern)
    assert elimination_tree(pattern) == [min(column, default=-1) for column in below]
    ordered, order, parent = postordered(pattern)
    assert sorted(order) == list(range(len(pattern)))
    assert all(above == -1 or above > node for node, above in enumerate(parent))
    again = factor(ordered)
    assert parent == [min(column, default=-1) for column in again]
    counts = column_counts(ordered, parent)
    assert counts == [len(column) + 1 for column in again]
    # A post-order changes no fill.
    assert counts == [len(below[column]) + 1 for column in order]


def test_postorder_lists_subtrees_together() -> None:
    assert postorder([4, 3, 3, 4, -1, -1]) == [0, 1, 2, 3, 4, 5]
    deep = postorder([*range(1, 100_000), -1])
    assert deep == list(range(100_000))


@pytest.mark.parametrize("seed", range(60))
def test_supernodes_are_those_of_the_factor(seed: int) -> None:
    """A node's columns are consecutive, have the same rows below, and hang together one by one."""
    pattern = drawn(seed)
    ordered, _, parent = postordered(pattern)
    below = factor(ordered)
    tree = assembly_tree(pattern)
    column = 0
    for eta, cb in zip(tree.pivots, tree.border, strict=True):
        if eta:
            last = column + eta - 1
            assert len(below[last]) == cb
            for j in range(column, last):
                assert below[j] == below[j + 1] | {j + 1}
                assert [k for k, above in enumerate(parent) if above == j + 1] == [j]
            column += eta
    assert column == len(pattern)
    assert tree.factor_entries == sum(len(rows) + 1 for rows in below)


@pytest.mark.parametrize("relax", [0, 1, 2, 4, 50])
def test_trees_are_trees(relax: int) -> None:
    for seed in range(60):
        pattern = drawn(seed)
        plain, tree = assembly_tree(pattern), assembly_tree(pattern, relax=relax)
        assert sum(tree.pivots) == len(pattern)
        assert tree.parent[-1] == -1
        assert all(node < above for node, above in enumerate(tree.parent[:-1]))
        assert len(tree) <= len(plain)
        assert max(tree.pivots) <= max(relax, *plain.pivots)
        # A contribution block fits into the parent's front.
        for node, above in enumerate(tree.parent[:-1]):
            assert tree.border[node] <= tree.pivots[above] + tree.border[above]
        if relax <= 1:
            assert tree == plain


def test_forests_get_a_virtual_root() -> None:
    tree = assembly_tree(pattern_of(3, [0], [1]))
    assert (tree.parent, tree.pivots, tree.border) == ([2, 2, -1], [2, 1, 0], [0, 0, 0])


def test_sizes_of_nodes_follow_from_columns_and_border() -> None:
    tree = assembly_tree(pattern_of(3, [0, 1], [2, 2]))  # two leaves below one column
    assert (tree.pivots, tree.border, tree.parent) == ([1, 1, 1], [1, 1, 0], [2, 2, -1])
    body = tree.body(Storage())
    assert (body["output_size"], body["workspace"], body["time"]) == ([1, 1, 0], [3, 3, 1], [4, 4, 1])
    assert "static_memory" not in body
    body = tree.body(Storage(symmetric=True, factors_in_core=True, entry_bytes=8))
    assert (body["output_size"], body["workspace"], body["static_memory"]) == ([8, 8, 0], [16, 16, 8], 40)


@pytest.mark.parametrize("name", ORDERINGS)
def test_orderings_are_permutations(name: str) -> None:
    if name == "rcm":
        pytest.importorskip("scipy")
    for pattern in (*(drawn(seed) for seed in range(40)), mesh(20, 13), pattern_of(300, [], [])):
        order = ORDERINGS[name](pattern)
        assert sorted(order) == list(range(len(pattern)))
        assert ORDERINGS[name](pattern) == order


def test_orderings_reduce_fill() -> None:
    grid = mesh(30, 30)
    fill = {
        name: assembly_tree(grid.permuted(ORDERINGS[name](grid))).factor_entries for name in ("natural", "amd", "nd")
    }
    geometric = assembly_tree(grid.permuted(dissection((30, 30)))).factor_entries
    assert fill["amd"] < 0.5 * fill["natural"]
    assert fill["nd"] < 0.65 * fill["natural"]
    assert fill["amd"] < 1.1 * geometric


def test_minimum_degree_is_without_fill_on_trees() -> None:
    rng = random.Random(5)
    tree = pattern_of(200, list(range(1, 200)), [rng.randrange(i) for i in range(1, 200)])
    order = ORDERINGS["amd"](tree)
    assert assembly_tree(tree.permuted(order)).factor_entries == 399


def test_dissection_of_a_path() -> None:
    path = pattern_of(1000, range(999), range(1, 1000))
    depth = [0] * 1000
    parent = elimination_tree(path.permuted(nested_dissection(path)))
    for node in reversed(range(1000)):
        depth[node] = depth[parent[node]] + 1 if parent[node] >= 0 else 0
    assert max(depth) < 110
