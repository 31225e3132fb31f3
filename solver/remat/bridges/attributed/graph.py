"""A directed graph whose nodes and edges have texts, with their lines, and the task graph that it describes.

A node is a task. It takes its `time`, and writes one value of its `size`, which the successors read. An edge with a
`size` is a separate value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remat.documents import read_text
from remat.errors import InstanceError, QuantityError
from remat.messages import brief
from remat.units import LARGEST_SIZE, Units, parse_number, parse_size, parse_time

MOST = 2_000_000
"""Maximum number of nodes and edges of a graph."""

LARGEST = 2**29
"""Bytes of the text of a graph."""

MOST_DIGITS = 100
"""Decimal places before or after the point in which a number begins."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge, its attributes and its line."""

    source: str
    target: str
    attributes: Mapping[str, str]
    line: int


@dataclass(slots=True)
class Graph:
    """A directed graph.

    Attributes
    ----------
    name : str
    nodes : dict of str to dict
        Attributes of each node, in the order in which nodes were first named.
    lines : dict of str to int
        Where each node was first named.
    edges : list of Edge
    """

    name: str = ""
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)

    def node(self, name: str, line: int, attributes: Mapping[str, str] | None = None) -> None:
        """Add a node, or add attributes to an existing node."""
        if name not in self.nodes:
            if len(self.nodes) >= MOST:
                raise InstanceError(f"line {line}: more than {MOST:,} nodes")
            self.nodes[name] = {}
            self.lines[name] = line
        self.nodes[name].update(attributes or {})

    def edge(self, source: str, target: str, line: int, attributes: Mapping[str, str]) -> None:
        """Add an edge."""
        if len(self.edges) >= MOST:
            raise InstanceError(f"line {line}: more than {MOST:,} edges")
        self.edges.append(Edge(source, target, attributes, line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The conversion of attributes to times and sizes.

    Attributes
    ----------
    time, size, workspace : str
        Names of the attributes.
    time_unit : str
        Unit of bare times; with ``unit``, sizes are unitless, too, unless one of them has a suffix.
    default_time, default_size : str or None
        For nodes without the attribute; None: these are refused.
    name : str or None
        Name of the instance; default: the graph's.
    """

    time: str = "time"
    size: str = "size"
    workspace: str = "workspace"
    time_unit: str = "unit"
    default_time: str | None = None
    default_size: str | None = None
    name: str | None = None


def imported(path: str, read: Callable[[str], Graph], how: Reading, *, what: str) -> dict[str, Any]:
    """Return the instance that a file (``.gz`` too) of a format describes; errors begin with the file's name."""
    name, text = read_text(path, "graph", LARGEST)
    try:
        graph = read(text)
    except InstanceError as error:
        raise InstanceError(f"{name}: {error}") from None
    return graph_document(graph, how, file=name, what=what)


def graph_document(graph: Graph, how: Reading, *, file: str, what: str) -> dict[str, Any]:
    """Return the instance of kind `dag` that a graph describes.

    Parameters
    ----------
    graph : Graph
    how : Reading
    file, what : str
        For messages, the name and the source: the file, and the name of its format.

    Raises
    ------
    InstanceError
        Without nodes; for a node without a time or a size that is needed; for a time or size that is no such thing. The
        message has the line.
    """
    if not graph.nodes:
        raise InstanceError(f"{file}: the graph has no nodes")
    numbers = _Numbers(how, file, _units(graph, how))
    values: list[dict[str, Any]] = []
    writes: dict[str, list[str]] = {name: [] for name in graph.nodes}
    reads: dict[str, list[str]] = {name: [] for name in graph.nodes}
    whole = {edge.source for edge in graph.edges if how.size not in edge.attributes}
    for name, attributes in graph.nodes.items():
        if name in whole or how.size in attributes:
            size = numbers.size(attributes, how.default_size, f"node {brief(name)}", graph.lines[name])
            values.append({"id": name, "size": size})
            writes[name].append(name)
    seen: Counter[tuple[str, str]] = Counter()
    for edge in graph.edges:
        value = edge.source
        if how.size in edge.attributes:
            pair = (edge.source, edge.target)
            seen[pair] += 1
            value = f"{edge.source}->{edge.target}" + (f"#{seen[pair]}" if seen[pair] > 1 else "")
            size = numbers.size(edge.attributes, None, f"edge {brief(value)}", edge.line)
            values.append({"id": value, "size": size})
            writes[edge.source].append(value)
        if value not in reads[edge.target]:
            reads[edge.target].append(value)
    tasks = [
        numbers.task(name, attributes, graph.lines[name]) | {"reads": reads[name], "writes": writes[name]}
        for name, attributes in graph.nodes.items()
    ]
    used = {value for names in reads.values() for value in names}
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "name": how.name or graph.name or what,
        "description": f"{len(tasks):,} tasks and {len(values):,} values of a {what} graph",
        "source": f"imported by: remat import {what} {file}",
        "units": numbers.units,
        "values": values,
        "tasks": tasks,
        "outputs": [value["id"] for value in values if value["id"] not in used],
    }


def _units(graph: Graph, how: Reading) -> dict[str, str]:
    """Return the units: plain ones, unless a time unit is given or a size has a suffix."""
    if how.time_unit != "unit":
        return {"time": how.time_unit, "memory": "B"}
    keys = (how.size, how.workspace)
    texts = [attributes.get(key, "") for attributes in graph.nodes.values() for key in keys]
    texts += [edge.attributes.get(how.size, "") for edge in graph.edges]
    suffixed = any(text[-1:].isalpha() for text in (each.strip() for each in texts))
    return {"time": "unit", "memory": "B" if suffixed else "unit"}


class _Numbers:
    """Reads attributes; errors name the node and its line."""

    def __init__(self, how: Reading, file: str, units: dict[str, str]) -> None:
        self.how, self.file, self.units = how, file, units
        self.known = Units(**units)  # type: ignore[arg-type]

    def task(self, name: str, attributes: Mapping[str, str], line: int) -> dict[str, Any]:
        """Return a task without reads and writes."""
        text, what = attributes.get(self.how.time, self.how.default_time), f"node {brief(name)}"
        if text is None:
            raise self._error(line, f"{what} has no {brief(self.how.time)}; give one, or a default time")
        made: dict[str, Any] = {"id": name}
        try:
            bare = text.strip()
            made["time"] = parse_time(bare, self.known) if bare[-1:].isalpha() else parse_number(_plain(bare))
        except (QuantityError, ValueError) as error:
            raise self._error(line, f"{what}: {self.how.time}: {error}") from None
        if self.how.workspace in attributes:
            made["workspace"] = self._size(attributes[self.how.workspace], f"{what}: {self.how.workspace}", line)
        return made

    def size(self, attributes: Mapping[str, str], default: str | None, what: str, line: int) -> int:
        """Return the size of a value."""
        text = attributes.get(self.how.size, default)
        if text is None:
            raise self._error(line, f"{what} has no {brief(self.how.size)}; give one, or a default size")
        return self._size(text, f"{what}: {self.how.size}", line)

    def _size(self, text: str, what: str, line: int) -> int:
        try:
            bare = text.strip()
            if bare[-1:].isalpha():
                return parse_size(bare, self.known)
            return parse_size(_plain(bare), self.known)
        except (QuantityError, ValueError) as error:
            raise self._error(line, f"{what}: {error}") from None

    def _error(self, line: int, message: str) -> InstanceError:
        return InstanceError(f"{self.file}: line {line}: {message}")


def _plain(text: str) -> Any:
    """Return a number: whole ones exactly."""
    from decimal import Decimal, InvalidOperation

    try:
        found = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{brief(text)} is not a number") from None
    if not found.is_finite() or abs(found.adjusted()) > MOST_DIGITS or abs(found) > LARGEST_SIZE:
        raise ValueError(f"{brief(text)} is out of range")
    return int(found) if found == found.to_integral_value() else found
