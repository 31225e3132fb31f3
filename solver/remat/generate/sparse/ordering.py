"""Fill-reducing orders of sparse symmetric matrices, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from remat.errors import MissingExtraError
from remat.generate.sparse.minimum_degree import minimum_degree
from remat.generate.sparse.pattern import Pattern, pattern_of

LEAF = 100
"""Parts of at most so many columns are not dissected further."""


def natural(pattern: Pattern) -> list[int]:
    """Return the order as given."""
    return list(range(len(pattern)))


def reverse_cuthill_mckee(pattern: Pattern) -> list[int]:
    """Return scipy's reverse Cuthill-McKee order, which keeps the band narrow.

    Raises
    ------
    MissingExtraError
        Without scipy.
    """
    try:
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import reverse_cuthill_mckee as scipy_order
    except ImportError:
        raise MissingExtraError("the ordering rcm", "sparse") from None
    n = len(pattern)
    # The index arrays must be 32 bits wide.
    start, neighbours = pattern.start.astype(np.int32), pattern.neighbours.astype(np.int32)
    matrix = csr_matrix((np.ones(len(neighbours)), neighbours, start), shape=(n, n))
    order: list[int] = scipy_order(matrix, symmetric_mode=True).tolist()
    return order


def nested_dissection(pattern: Pattern) -> list[int]:
    """Return a nested dissection order with breadth-first separators (George and Liu 1978).

    Two breadth-first searches find a vertex at the edge of the part. Each level of the search from this vertex
    separates the levels before it from the levels after it. The separator is the level with the smallest ratio of its
    size to the smaller side, without vertices that have no neighbour after it. Parts of up to `LEAF` columns are
    ordered by minimum degree. O(entries log n) if the parts are balanced. Good for meshes; `amd` is better for graphs
    with short paths.
    """
    graph = pattern.lists()
    part = [0] * len(graph)  # the part that a vertex belongs to; -1 once it has its place
    pieces: list[list[int]] = []
    stack = [list(range(len(graph)))]
    labels = 0
    while stack:
        vertices = stack.pop()
        labels += 1
        for vertex in vertices:
            part[vertex] = labels
        levels = _levels(graph, part, labels, vertices[0]) if vertices else []
        reached = sum(map(len, levels))
        if 0 < reached < len(vertices):  # not connected
            stack += reversed(_components(graph, part, labels, vertices))
            continue
        if len(vertices) > LEAF:
            for _ in range(2):
                levels = _levels(graph, part, labels, min(levels[-1], key=lambda vertex: len(graph[vertex])))
        if len(vertices) <= LEAF or len(levels) < 3:
            pieces.append(_leaf_order(graph, vertices))
            continue
        separator, sides = _split(graph, levels)
        pieces.append(separator)
        stack += sides
    # A separator was listed before its sides, and comes behind them.
    return [vertex for piece in reversed(pieces) for vertex in piece]


def _components(graph: list[list[int]], part: list[int], label: int, vertices: list[int]) -> list[list[int]]:
    """Return the connected components of a part, in the order of their first vertices."""
    seen: set[int] = set()
    components = []
    for start in vertices:
        if start not in seen:
            component = [vertex for level in _levels(graph, part, label, start) for vertex in level]
            seen.update(component)
            components.append(sorted(component))
    return components


def _levels(graph: list[list[int]], part: list[int], label: int, start: int) -> list[list[int]]:
    """Return the breadth-first levels of a vertex inside its part."""
    seen = {start}
    levels = [[start]]
    while True:
        following = []
        for vertex in levels[-1]:
            for other in graph[vertex]:
                if part[other] == label and other not in seen:
                    seen.add(other)
                    following.append(other)
        if not following:
            return levels
        levels.append(following)


def _split(graph: list[list[int]], levels: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Return the separator, and the two sides, of the cut that is smallest for what it cuts off."""
    total = sum(map(len, levels))
    before = len(levels[0])
    best, chosen = (2.0 * total, 0), 1
    for index in range(1, len(levels) - 1):
        behind = total - before - len(levels[index])
        best, chosen = min((best, chosen), ((len(levels[index]) / min(before, behind), -min(before, behind)), index))
        before += len(levels[index])
    beyond = set(levels[chosen + 1])
    separator = [vertex for vertex in levels[chosen] if any(other in beyond for other in graph[vertex])]
    taken = set(separator)
    near = [vertex for level in levels[: chosen + 1] for vertex in level if vertex not in taken]
    far = [vertex for level in levels[chosen + 1 :] for vertex in level]
    return sorted(separator), [sorted(far), sorted(near)]


def _leaf_order(graph: list[list[int]], vertices: list[int]) -> list[int]:
    if len(vertices) == 1:
        return vertices
    number = {vertex: index for index, vertex in enumerate(vertices)}
    edges = [(number[v], number[o]) for v in vertices for o in graph[v] if o in number]
    rows, columns = ([v for v, _ in edges], [o for _, o in edges])
    return [vertices[index] for index in minimum_degree(pattern_of(len(vertices), rows, columns))]


ORDERINGS: dict[str, Callable[[Pattern], list[int]]] = {
    "natural": natural,
    "amd": minimum_degree,
    "nd": nested_dissection,
    "rcm": reverse_cuthill_mckee,
}
