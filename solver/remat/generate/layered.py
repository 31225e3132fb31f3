"""Random layered task graphs, with edges anywhere between neighbouring layers, or between neighbours only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil, floor, isqrt, sqrt
from typing import Any

from remat.generate import check
from remat.generate.dag import MOST_EDGES, MOST_TASKS, Predecessors, TaskOptions, check_edges, finish, shuffled
from remat.generate.document import Document
from remat.generate.draw import Draw

ORDERS = ("random", "layer")

DRIFT = 0.2
"""Largest distance of a skip to one side, as a share of the layer."""


def layered_dag(
    *,
    nodes: int = 100,
    layers: int = 0,
    edge_probability: float = 0.3,
    skip_probability: float = 0.2,
    order: str = "random",
    **options: Any,
) -> Document:
    """Return a random layered graph with one source and one sink.

    Every task reads a value of the previous layer and has a reader in the next layer, so the graph is connected; skips
    reach further back. Layers are about equally wide, and edges are not local: `local_layered_dag` makes the graphs of
    the literature.

    Parameters
    ----------
    nodes : int
        Tasks, at least 2 (of the forward graph, with `training`).
    layers : int
        Layers, source and sink included; 0 means about ``2*sqrt(nodes)``.
    edge_probability : float
        Probability of an edge between two tasks of neighbouring layers.
    skip_probability : float
        Probability that a task reads one more value, from any earlier layer.
    order : {"random", "layer"}
        The listed (reference) order: a random topological one, or layer by layer.
    **options
        See `TaskOptions`.

    Returns
    -------
    dict
        Kind ``dag``.

    Raises
    ------
    ValueError
        A parameter out of range, or sizes beyond 2^62.
    """
    check.integer("nodes", nodes, minimum=2, maximum=MOST_TASKS)
    depth = check.integer("layers", layers, maximum=nodes) or min(nodes, max(2, isqrt(4 * nodes)))
    if depth == 1 or (depth == 2 and nodes > 2):
        raise ValueError(f"layers {layers} leaves no layer for {nodes} nodes between source and sink; use at least 3")
    edge = check.probability("edge_probability", edge_probability)
    skip = check.probability("skip_probability", skip_probability)
    check.choice("order", order, ORDERS)
    figures = TaskOptions(**options)
    draw = figures.draw()
    # Source and sink, one task per inner layer, the others anywhere in between.
    counts = [1] * depth
    for _ in range(nodes - depth):
        counts[draw.integer(1, depth - 2)] += 1
    check_edges(sum(a * b for a, b in pairwise(counts)), edge, "edge_probability, or raise layers")
    starts = list(accumulate(counts, initial=0))
    edges: list[set[int]] = [set() for _ in range(nodes)]
    for k in range(1, depth):
        before, own = range(starts[k - 1], starts[k]), range(starts[k], starts[k + 1])
        for v in own:
            edges[v].update(u for u in before if draw.chance(edge))
            if not edges[v]:
                edges[v].add(draw.pick(before))
            if k > 1 and draw.chance(skip):
                edges[v].add(draw.integer(0, starts[k - 1] - 1))
        read = set().union(*(edges[v] for v in own))
        for u in before:
            if u not in read:
                edges[draw.pick(own)].add(u)
    return _listed("layered", depth, edges, order, draw, figures)


def local_layered_dag(
    *,
    nodes: int = 100,
    width: float = 0.3,
    variability: float = 0.75,
    edge_density: float = 0.2,
    skip_density: float = 0.14,
    order: str = "random",
    **options: Any,
) -> Document:
    """Return a random layered graph with layers of different widths and local edges.

    The recipe is that of Gagrani et al. 2022, *Neural topological ordering for computation graphs*, also used for the
    random layered graphs of Moccasin (Bartan et al. 2023). Layers are columns of tasks. In the wider of two
    neighbouring layers, all tasks have about the same number of edges, to the tasks opposite. Times and sizes are drawn
    as in the other families.

    Parameters
    ----------
    nodes : int
        Tasks, at least 2 (of the forward graph, with `training`).
    width : float
        Between 0 and 1: there are about ``sqrt(nodes (1 / width - 1))`` layers, so that wider graphs have fewer.
    variability : float
        Widths of layers differ from their mean by this share, at the most.
    edge_density : float
        Share of the pairs of tasks of neighbouring layers that are joined, beyond one edge for each task.
    skip_density : float
        Share of all edges that skip layers; below 1.
    order : {"random", "layer"}
        The listed (reference) order: a random topological one, or layer by layer.
    **options
        See `TaskOptions`.

    Returns
    -------
    dict
        Kind ``dag``.

    Raises
    ------
    ValueError
        A parameter out of range, or sizes beyond 2^62.
    """
    check.integer("nodes", nodes, minimum=2, maximum=MOST_TASKS)
    share, spread = check.probability("width", width), check.probability("variability", variability)
    density, skips = check.probability("edge_density", edge_density), check.probability("skip_density", skip_density)
    if not 0 < share < 1:
        raise ValueError(f"width must lie between 0 and 1, both excluded, not {width}; the literature has .25 to .5")
    if skips > 0.9:
        raise ValueError(f"skip_density must be at most 0.9, not {skip_density}: nine of ten edges would skip layers")
    check.choice("order", order, ORDERS)
    figures = TaskOptions(**options)
    draw = figures.draw()
    mean = nodes / max(1, ceil(sqrt(nodes * (1 / share - 1))))
    low = max(1, ceil(mean * (1 - spread)))
    high = max(low, floor(mean * (1 + spread)))
    counts, left = [1], nodes - 2
    while left > 0:
        counts.append(min(left, draw.integer(low, high)))
        left -= counts[-1]
    counts.append(1)
    joined = [_edges_between(a, b, density) for a, b in pairwise(counts)]
    # Each skip is a draw, too.
    total = round(sum(joined) / (1 - skips))
    if total > MOST_EDGES:
        raise ValueError(f"{total:,} edges, at most {MOST_EDGES:,}; lower edge_density, skip_density or width")
    starts = list(accumulate(counts, initial=0))
    edges: list[set[int]] = [set() for _ in range(nodes)]
    for layer, number in enumerate(joined):
        for u, v in _opposite(counts[layer], counts[layer + 1], number, draw):
            edges[starts[layer + 1] + v].add(starts[layer] + u)
    last = len(counts) - 2
    for _ in range(total - sum(joined) if last >= 3 else 0):
        source = draw.integer(1, last - 2)
        target = draw.integer(source + 2, last)
        across = draw.share()
        beside = min(across + DRIFT * draw.share(), 0.999)
        edges[starts[target] + int(beside * counts[target])].add(starts[source] + int(across * counts[source]))
    return _listed("local_layered", len(counts), edges, order, draw, figures)


def _listed(
    family: str, layers: int, edges: Sequence[set[int]], order: str, draw: Draw, figures: TaskOptions
) -> Document:
    """Return the document of a graph whose tasks are numbered layer by layer, listed as asked for."""
    predecessors = [sorted(each) for each in edges]
    if order == "random":
        predecessors = shuffled(predecessors, draw)
    return finish(family, f"Random layered graph, {layers} layers", predecessors, draw, figures)


def _edges_between(before: int, after: int, density: float) -> int:
    """Return how many edges join two neighbouring layers: one for each task of the wider, and a share of the rest."""
    widest = max(before, after)
    return max(widest, min(before * after, round(density * before * after + (1 - density) * widest)))


def _opposite(before: int, after: int, number: int, draw: Draw) -> Predecessors:
    """Return edges between two layers, spread evenly over the wider one, each to a range of the other one."""
    wide, narrow = max(before, after), min(before, after)
    degrees = [number // wide] * wide
    chosen = list(range(wide))
    for _ in range(number % wide):
        slot = draw.integer(0, len(chosen) - 1)
        chosen[slot], chosen[-1] = chosen[-1], chosen[slot]
        degrees[chosen.pop()] += 1
    edges: Predecessors = []
    for place, degree in enumerate(degrees):
        opposite = ceil(place * (narrow - 1) / (wide - 1)) if wide > 1 else 0
        first = min(max(0, opposite - (degree - 1) // 2), narrow - degree)
        edges += ([place, other] if before >= after else [other, place] for other in range(first, first + degree))
    return edges
