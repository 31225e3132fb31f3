"""Graphs as edges between numbered nodes: networkx graphs, pairs, and arrays of pairs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from remat.building.columns import entries
from remat.errors import InstanceError
from remat.graph.taskgraph import IntArray, Ragged
from remat.messages import brief, elided


@dataclass(frozen=True)
class Edges:
    """Numbered nodes and the edges between them.

    Attributes
    ----------
    count : int
    source, target : (edges,) int64
    nodes : tuple, optional
        What the caller calls the nodes; None where these are numbers.
    attributes : sequence of mappings, optional
        What a graph says of each node.
    """

    count: int
    source: IntArray
    target: IntArray
    nodes: tuple[Hashable, ...] | None = None
    attributes: tuple[Mapping[str, Any], ...] | None = None

    def predecessors(self) -> Ragged:
        """Return the sources of each node's edges, in the order of the edges."""
        order = np.argsort(self.target, kind="stable")
        counts = np.bincount(self.target, minlength=self.count)
        return Ragged(np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts))), self.source[order])

    def shown(self, node: int) -> str:
        """Return how a message calls a node."""
        return str(node) if self.nodes is None else elided(repr(self.nodes[node]))


def is_graph(given: object) -> bool:
    """Whether something has nodes, edges and successors, as graphs of networkx have."""
    return all(hasattr(given, name) for name in ("nodes", "edges", "is_directed"))


def edges_of(given: Any, count: int | None) -> Edges:
    """Return the edges of a graph, or of pairs of node numbers.

    Raises
    ------
    InstanceError
        For an undirected graph, several edges from one node to another, and whatever else is no graph.
    """
    if is_graph(given):
        return _of_graph(given)
    if getattr(given, "ndim", 0) == 2 and callable(getattr(given, "to_numpy", None)):
        given = given.to_numpy()  # a data frame
    _refuse_other_layouts(given)
    if hasattr(given, "dtype") and getattr(given, "ndim", 0) == 2 and given.shape[1] == 2:
        pairs = np.asarray(given)
        if pairs.dtype.kind not in "iu":
            raise InstanceError(f"an array of type {pairs.dtype}; the ends of edges are node numbers", "graph")
    else:
        listed = entries("graph", given)
        for index, edge in enumerate(listed):
            if not isinstance(edge, list) or len(edge) != 2 or not all(type(end) is int for end in edge):
                shown = elided(repr(tuple(edge))) if isinstance(edge, list) and len(edge) == 2 else brief(edge)
                remedy = "build a networkx.DiGraph from pairs of other nodes"
                raise InstanceError(f"{shown} is not a pair of node numbers; {remedy}", f"graph[{index}]")
            if max(map(abs, edge)) >= 2**62:
                raise InstanceError(f"{brief(max(edge, key=abs))} is not a node number", f"graph[{index}]")
        pairs = np.array(listed, dtype=np.int64).reshape(len(listed), 2)
    largest = int(pairs.max(initial=-1))
    count = largest + 1 if count is None else count
    good = ((pairs >= 0) & (pairs < count)).all(axis=1)
    if not good.all():
        at = int(np.argmin(good))
        ends = ", ".join(str(int(end)) for end in pairs[at])
        raise InstanceError(f"({ends}) is out of range; nodes are numbered 0 to {count - 1:,}", f"graph[{at}]")
    return Edges(count, pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64))


def _refuse_other_layouts(given: Any) -> None:
    """Recognise the other forms in which programs keep edges, and say how to turn them into pairs."""
    if hasattr(given, "indptr") or hasattr(given, "tocsr"):
        remedy = "give pairs: numpy.transpose(graph.nonzero()), if its entries are edges from row to column"
        raise InstanceError(f"a sparse matrix of shape {tuple(given.shape)}; {remedy}", "graph")
    if isinstance(given, Mapping):
        raise InstanceError("a mapping; give networkx.DiGraph(graph), or pairs of node numbers", "graph")
    shape = tuple(getattr(given, "shape", ()))
    if len(shape) == 2 and shape[1] != 2 and shape[0] == 2:
        remedy = "transpose it (graph.T): one row (source, target) for each edge"
        raise InstanceError(f"an array of shape {shape}, with one row of sources and one of targets; {remedy}", "graph")
    if len(shape) == 2 and shape[0] == shape[1] != 2:
        remedy = "give pairs: numpy.argwhere(graph), if its entries are edges from row to column"
        raise InstanceError(f"an array of shape {shape}, such as an adjacency matrix; {remedy}", "graph")
    if shape and len(shape) != 2:
        raise InstanceError(f"an array of shape {shape}; give one row (source, target) for each edge", "graph")
    if isinstance(given, (list, tuple)) and len(given) == 2:
        lengths = [len(one) if hasattr(one, "__len__") and not isinstance(one, str) else 0 for one in given]
        if lengths[0] == lengths[1] > 2:
            remedy = "give pairs: list(zip(*graph))"
            raise InstanceError(f"one sequence of {lengths[0]:,} sources and one of targets; {remedy}", "graph")


def _of_graph(graph: Any) -> Edges:
    if not graph.is_directed():
        raise InstanceError("the graph is undirected; edges run from the producer to the consumer", "graph")
    if graph.is_multigraph():
        raise InstanceError("a multigraph; one edge from a node to another is enough", "graph")
    found = list(graph.nodes(data=True))
    nodes = tuple(node for node, _ in found)
    number = {node: index for index, node in enumerate(nodes)}
    ends = np.fromiter(
        (number[end] for target in nodes for source in graph.pred[target] for end in (source, target)), dtype=np.int64
    ).reshape(-1, 2)
    attributes = tuple(data for _, data in found)
    return Edges(len(nodes), ends[:, 0], ends[:, 1], nodes, attributes)


def attribute(argument: str, given: Any, edges: Edges, nodes: Iterable[int]) -> Any:
    """Return the column of some nodes: a text names an attribute of the graph, a mapping has an entry for each node."""
    nodes = list(nodes)
    if isinstance(given, str) and given and edges.attributes is not None and not _is_quantity(given, edges.attributes):
        try:
            return list(map(itemgetter(given), map(edges.attributes.__getitem__, nodes)))
        except KeyError:
            node = next(node for node in nodes if given not in edges.attributes[node])
            hint = f"node {edges.shown(node)} has no attribute {given!r}; for one entry for all, give a quantity"
            raise InstanceError(hint, f"{argument}[{edges.shown(node)}]") from None
    if isinstance(given, Mapping):
        own: tuple[Any, ...] = tuple(range(edges.count)) if edges.nodes is None else edges.nodes
        try:
            return [given[own[node]] for node in nodes]
        except KeyError:
            node = next(node for node in nodes if own[node] not in given)
            raise InstanceError(_MISSING, f"{argument}[{edges.shown(node)}]") from None
    return given


def _is_quantity(text: str, attributes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a text is one entry for all nodes, such as 8MB, and not the name of an attribute."""
    return text[0].isdigit() and not any(text in data for data in attributes)


_MISSING = "there is no entry for it; a mapping has one for each row, or for each type of processor of machine="


def by_name(argument: str, given: Any, names: Iterable[str]) -> Any:
    """Return a mapping of name -> entry as a column; anything else unchanged."""
    if not isinstance(given, Mapping):
        return given
    try:
        return [given[name] for name in names]
    except KeyError as error:
        raise InstanceError(_MISSING, f"{argument}[{elided(repr(error.args[0]))}]") from None
