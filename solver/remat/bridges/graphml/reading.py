"""GraphML, read without entities and external documents: nodes, edges, and their attributes by name."""

from __future__ import annotations

from typing import Any

from remat.bridges.attributed.graph import Graph, Reading, imported
from remat.errors import InstanceError
from remat.messages import brief


def import_graphml(path: str, how: Reading | None = None) -> dict[str, Any]:
    """Make a task graph of a GraphML file (``.gz`` too); see `graph_document` for what its attributes mean.

    Raises
    ------
    InstanceError
        For anything that is not one directed graph in GraphML, with the line.
    """
    return imported(path, read_graphml, how or Reading(), what="graphml")


def read_graphml(text: str) -> Graph:
    """Read the text of a GraphML file; InstanceError with the line."""
    from xml.parsers import expat

    reader = _Reader()
    try:
        reader.parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise InstanceError(f"line {error.lineno}: malformed XML: {expat.errors.messages[error.code]}") from None
    if reader.depth_of_graph == 0:
        raise InstanceError("not GraphML: there is no graph")
    return reader.graph


class _Reader:
    """Handlers of an XML parser."""

    def __init__(self) -> None:
        from xml.parsers import expat

        self.parser = expat.ParserCreate("UTF-8")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.graph = Graph()
        self.depth_of_graph = 0
        self.path: list[str] = []
        self.names: dict[str, tuple[str, str]] = {}
        self.defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}}
        self.key = self.data = ""
        self.attributes: dict[str, str] = {}
        self.current: tuple[str, ...] = ()
        self.begun = 0

    @property
    def line(self) -> int:
        """The line of what is read."""
        return self.parser.CurrentLineNumber

    def _error(self, message: str) -> InstanceError:
        return InstanceError(f"line {self.line}: {message}")

    def _doctype(self, *_: Any) -> None:
        raise self._error("a document type (DOCTYPE) is refused")

    def _start(self, tag: str, given: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        if not self.path and tag != "graphml":
            raise self._error(f"expected <graphml>, not <{tag[:60]}>")
        self.path.append(tag)
        if len(self.path) > 100:
            raise self._error("elements are nested too deeply")
        if tag == "key":
            self._key(given)
        elif tag == "graph":
            self._graph(given)
        elif tag == "node":
            self.current, self.attributes, self.begun = (
                (self._needed(given, "id"),),
                dict(self.defaults["node"]),
                self.line,
            )
            self.graph.node(self.current[0], self.line)
        elif tag == "edge":
            if given.get("directed") == "false":
                raise self._error("the edge has no direction")
            self.current = (self._needed(given, "source"), self._needed(given, "target"))
            self.attributes, self.begun = dict(self.defaults["edge"]), self.line
        elif tag in ("data", "default"):
            if tag == "data":
                self.key = self._needed(given, "key")
            self.data = ""
        elif tag in ("hyperedge", "port"):
            raise self._error(f"<{tag}> is not supported")

    def _key(self, given: dict[str, str]) -> None:
        self.key = self._needed(given, "id")
        self.names[self.key] = (given.get("attr.name", self.key), given.get("for", "all"))

    def _graph(self, given: dict[str, str]) -> None:
        self.depth_of_graph += 1
        if self.depth_of_graph > 1:
            raise self._error("expected one graph, without nested or further ones")
        if given.get("edgedefault") == "undirected":
            raise self._error("the graph is undirected; tasks need directed edges")
        self.graph.name = given.get("id", "")

    def _needed(self, given: dict[str, str], name: str) -> str:
        if not given.get(name):
            raise self._error(f"<{self.path[-1]}> has no {name!r}")
        return given[name]

    def _text(self, text: str) -> None:
        if self.path and self.path[-1] in ("data", "default"):
            self.data += text

    def _end(self, tag: str) -> None:
        tag = self.path.pop()
        if tag == "data" and self.path and self.path[-1] in ("node", "edge"):
            if self.key not in self.names:
                raise self._error(f"there is no key {brief(self.key)}")
            self.attributes[self.names[self.key][0]] = self.data
        elif tag == "default":
            if self.path[-1:] != ["key"]:
                raise self._error("<default> stands in a <key> only")
            name, kind = self.names[self.key]
            for each in ("node", "edge"):
                if kind in (each, "all"):
                    self.defaults[each][name] = self.data
        elif tag == "node":
            self.graph.node(self.current[0], self.begun, self.attributes)
        elif tag == "edge":
            source, target = self.current
            self.graph.edge(source, target, self.begun, self.attributes)
        elif tag == "graph":
            for edge in self.graph.edges:
                for end in (edge.source, edge.target):
                    if end not in self.graph.nodes:
                        raise InstanceError(f"line {edge.line}: there is no node {brief(end)}")
