"""The language DOT: nodes, edges, chains of edges, defaults and subgraphs of a directed graph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from remat.bridges.attributed.graph import Graph, Reading, imported
from remat.errors import InstanceError
from remat.messages import brief

DEEPEST = 200
"""Subgraphs inside each other."""

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f\v\ufeff]+)|(?P<newline>\n)|(?P<comment>//[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<arrow>->|--)|(?P<sign>[{}\[\]=;,:+])
    |(?P<word>[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*|-?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][+-]?\d+)?\w*)""",
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    """A word, a quoted text or a sign, and its line; `plain` for words and signs, which may be keywords."""

    text: str
    line: int
    plain: bool


def import_dot(path: str, how: Reading | None = None) -> dict[str, Any]:
    """Make a task graph of a DOT file (``.gz`` too); see `graph_document` for what its attributes mean.

    Raises
    ------
    InstanceError
        For anything that is not one directed graph in DOT, with the line.
    """
    return imported(path, read_dot, how or Reading(), what="dot")


def read_dot(text: str) -> Graph:
    """Read the text of a DOT file; InstanceError with the line."""
    return _Parser(text).parse()


def _tokens(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            html = " (labels in HTML are not supported)" if text[at] == "<" else ""
            unclosed = " (a text or comment without end)" if text[at] in '"/' else ""
            raise InstanceError(f"line {line}: unexpected {brief(text[at])}{html}{unclosed}")
        kind, word = found.lastgroup, found[0]
        if kind == "quoted":
            yield _Token(word[1:-1].replace("\\\n", "").replace('\\"', '"'), line, plain=False)
        elif kind in ("arrow", "sign", "word"):
            yield _Token(word, line, plain=True)
        line += word.count("\n")
        at = found.end()
    yield _Token("", line, plain=True)


class _Parser:
    """Reads statements, one token ahead."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.next = next(self.tokens)
        self.graph = Graph()

    def parse(self) -> Graph:
        """Read the graph."""
        self._keyword("strict")
        if not self._keyword("digraph"):
            if self.next.text.lower() == "graph":
                raise self._error("the graph is undirected; tasks need directed edges (digraph)")
            raise self._error(f"expected digraph, not {brief(self.next.text)}")
        if not self._is("{"):
            self.graph.name = self._identifier()
        self._expect("{")
        self._statements({"node": {}, "edge": {}}, 0)
        if self.next.text or not self.next.plain:
            raise self._error("expected one graph, and nothing after it")
        return self.graph

    def _statements(self, defaults: dict[str, dict[str, str]], depth: int) -> list[str]:
        """Read statements up to the closing brace; return the nodes that they name."""
        if depth > DEEPEST:
            raise self._error("subgraphs are nested too deeply")
        named: list[str] = []
        while not self._is("}"):
            if not self.next.text and self.next.plain:
                raise self._error("the graph has no end: } is missing")
            if self._is(";"):
                self._advance()
                continue
            named += self._statement(defaults, depth)
        self._advance()
        return named

    def _statement(self, defaults: dict[str, dict[str, str]], depth: int) -> list[str]:
        for kind in ("graph", "node", "edge"):
            if self._keyword(kind):
                defaults.setdefault(kind, {}).update(self._attributes())
                return []
        line = self.next.line
        ends = self._end(defaults, depth)
        if ends is None:  # name = value
            return []
        chain = [ends]
        while self._is("->") or self._is("--"):
            if self._advance().text == "--":
                raise self._error("-- is an edge without direction; write ->")
            following = self._end(defaults, depth)
            if following is None:
                raise self._error("an edge needs a node or a subgraph at its end")
            chain.append(following)
        given = self._attributes() if self._is("[") else {}
        if len(chain) == 1:
            if len(ends) == 1:
                self.graph.node(ends[0], line, given)
            return ends
        attributes = defaults["edge"] | given
        for sources, targets in pairwise(chain):
            for source in sources:
                for target in targets:
                    self.graph.edge(source, target, line, attributes)
        return [name for names in chain for name in names]

    def _end(self, defaults: dict[str, dict[str, str]], depth: int) -> list[str] | None:
        """Read a node or a subgraph; None for an assignment."""
        if self._keyword("subgraph"):
            if not self._is("{"):
                self._identifier()
            if not self._is("{"):
                raise self._error("a subgraph needs its statements in braces")
        if self._is("{"):
            self._advance()
            inner = {kind: dict(attributes) for kind, attributes in defaults.items()}
            return list(dict.fromkeys(self._statements(inner, depth + 1)))
        line = self.next.line
        name = self._identifier()
        if self._is("="):
            self._advance()
            self._identifier()
            return None
        while self._is(":"):  # a port, and a side of it
            self._advance()
            self._identifier()
        if name not in self.graph.nodes:
            self.graph.node(name, line, defaults["node"])
        return [name]

    def _attributes(self) -> dict[str, str]:
        """Read lists of attributes."""
        found: dict[str, str] = {}
        self._expect("[")
        while True:
            while not self._is("]"):
                name = self._identifier()
                value = "true"
                if self._is("="):
                    self._advance()
                    value = self._identifier()
                found[name] = value
                while self._is(",") or self._is(";"):
                    self._advance()
            self._advance()
            if not self._is("["):
                return found
            self._advance()

    def _identifier(self) -> str:
        token = self.next
        if token.plain and (
            not token.text or not (token.text[0].isalnum() or token.text[0] in "_-." or token.text > "\x7f")
        ):
            raise self._error(f"expected a name, not {brief(token.text) if token.text else 'the end of the file'}")
        if token.plain and token.text in ("->", "--"):
            raise self._error(f"expected a name, not {token.text}")
        self._advance()
        text = token.text
        while not token.plain and self._is("+"):
            self._advance()
            token = self._advance()
            if token.plain:
                raise self._error("+ joins texts in quotes only")
            text += token.text
        return text

    def _is(self, sign: str) -> bool:
        return self.next.plain and self.next.text == sign

    def _keyword(self, word: str) -> bool:
        if self.next.plain and self.next.text.lower() == word:
            self._advance()
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._is(sign):
            raise self._error(
                f"expected {sign}, not {brief(self.next.text) if self.next.text else 'the end of the file'}"
            )
        self._advance()

    def _advance(self) -> _Token:
        token = self.next
        if token.text or not token.plain:
            self.next = next(self.tokens)
        return token

    def _error(self, message: str) -> InstanceError:
        return InstanceError(f"line {self.next.line}: {message}")
