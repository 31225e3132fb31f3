"""Test GraphML and DOT: the meaning of graphs, and one-line errors with the line of the file."""

from __future__ import annotations

import random
from typing import Any

import networkx
import pytest

import remat
from remat.bridges.attributed.graph import Reading
from remat.bridges.dot.reading import import_dot, read_dot
from remat.bridges.graphml.reading import import_graphml, read_graphml
from remat.errors import InstanceError
from tests.cli.helpers import Run

DOT = """
/* a comment */ strict digraph "my graph" {
  node [time=1, size=2]; edge [color=red]   // defaults
  a [time=3, label="the
second line"];
  subgraph cluster_1 { node [size=16MB] b; c } -> d:port:n [size="1MB"]
  a -> b; a -> { c d } # chains and sets
  rankdir = LR
  "e" + " f" [time=.5]; -1 [workspace=7]
}
"""


def document(text: str, save: Any, **how: Any) -> dict[str, Any]:
    return import_dot(save(text, "graph.dot"), Reading(**how))


@pytest.fixture
def save(tmp_path: Any) -> Any:
    def write(content: str, name: str) -> str:
        (tmp_path / name).write_text(content)
        return str(tmp_path / name)

    return write


def test_dot_syntax_is_read(save: Any) -> None:
    made = document(DOT, save)
    assert made["name"] == "my graph"
    assert made["units"] == {"time": "unit", "memory": "B"}
    tasks = {task["id"]: task for task in made["tasks"]}
    assert list(tasks) == ["a", "b", "c", "d", "e f", "-1"]
    assert (tasks["a"]["time"], tasks["e f"]["time"], tasks["-1"]["workspace"]) == (3, 0.5, 7)
    assert tasks["d"]["reads"] == ["b->d", "c->d", "a"]
    sizes = {value["id"]: value["size"] for value in made["values"]}
    assert sizes == {"a": 2, "b": 16 * 10**6, "c": 16 * 10**6, "d": 2, "e f": 2, "-1": 2, "b->d": 10**6, "c->d": 10**6}
    assert set(made["outputs"]) == {"b", "c", "d", "e f", "-1"}
    assert remat.solve(remat.load(made)).makespan == 3 + 1 + 1 + 1 + 0.5 + 1


def test_graphml_of_networkx_and_dot_are_one_graph(save: Any, tmp_path: Any) -> None:
    draw = random.Random(5)
    graph = networkx.gnp_random_graph(20, 0.2, seed=1, directed=True)
    graph = networkx.DiGraph((f"n{u}", f"n{v}") for u, v in graph.edges if u < v)
    for node in graph:
        graph.nodes[node].update(time=draw.randint(1, 9), size=draw.randint(1, 9))
    for k, edge in enumerate(graph.edges):
        if k % 3 == 0:
            graph.edges[edge]["size"] = draw.randint(1, 9)
    networkx.write_graphml(graph, tmp_path / "graph.graphml")
    xml = import_graphml(str(tmp_path / "graph.graphml"))

    def attributes(found: dict[str, int]) -> str:
        return ", ".join(f"{key}={value}" for key, value in found.items())

    lines = [f"{node} [{attributes(found)}];" for node, found in graph.nodes.items()]
    lines += [f"{u} -> {v} [{attributes(found)}];" for (u, v), found in graph.edges.items()]
    text = document("digraph {" + "\n".join(lines) + "}", save)
    assert (xml["tasks"], xml["values"], xml["outputs"]) == (text["tasks"], text["values"], text["outputs"])
    remat.load(xml)


def test_defaults_of_keys_and_other_names(save: Any) -> None:
    text = """<g:graphml xmlns:g="http://graphml.graphdrawing.org/xmlns">
    <key id="d0" for="node" attr.name="weight" attr.type="double"><default>2</default></key>
    <key id="d1" for="all" attr.name="bytes"><default>5</default></key>
    <graph id="G" edgedefault="directed"><node id="a"/><node id="b"><data key="d0">1e3</data></node>
    <edge source="a" target="b"/><edge source="a" target="b"><data key="d1">7</data></edge></graph></g:graphml>"""
    made = import_graphml(save(text, "x.graphml"), Reading(time="weight", size="bytes", time_unit="us", name="n"))
    assert [task["time"] for task in made["tasks"]] == [2, 1000]
    assert made["tasks"][1]["reads"] == ["a->b", "a->b#2"]
    assert [value["size"] for value in made["values"]] == [5, 5, 5, 7]
    assert (made["units"], made["name"]) == ({"time": "us", "memory": "B"}, "n")


def test_missing_attributes_are_refused_or_have_defaults(save: Any) -> None:
    with pytest.raises(InstanceError, match=r"graph.dot: line 1: node 'a' has no 'size'; give one, or a default size"):
        document("digraph { a [time=1]; a -> b }", save)
    with pytest.raises(InstanceError, match=r"graph.dot: line 2: node 'b' has no 'time'"):
        document("digraph { a [time=1, size=1];\n a -> b }", save)
    made = document("digraph { a -> b }", save, default_time="2ms", default_size="1KiB", time_unit="s")
    assert [task["time"] for task in made["tasks"]] == [0.002, 0.002]
    assert [value["size"] for value in made["values"]] == [1024]  # nobody reads what b makes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: expected digraph, not ''"),
        ("graph { a -- b }", "line 1: the graph is undirected"),
        ("digraph { a -- b }", "line 1: -- is an edge without direction"),
        ("digraph {\n\n a -> }", "line 3: expected a name"),
        ("digraph {\n a -> b", "line 2: the graph has no end"),
        ("digraph { a [time=1 }", "line 1: expected a name, not '}'"),
        ("digraph { a [label=<b>] }", "labels in HTML are not supported"),
        ('digraph { a [label="b] }', "a text or comment without end"),
        ("digraph { a; } digraph { b; }", "expected one graph"),
        ("digraph { a = }", "expected a name"),
        ("digraph { " + "{" * 1000, "nested too deeply"),
        ("digraph { a -> b = c }", "an edge needs a node"),
        ('digraph { "a" + b }', "+ joins texts in quotes only"),
        ("digraph { @ }", "line 1: unexpected '@'"),
        ("digraph { subgraph x; }", "needs its statements in braces"),
    ],
)
def test_broken_dot_has_its_line(text: str, said: str) -> None:
    with pytest.raises(InstanceError) as caught:
        read_dot(text)
    assert said in str(caught.value)
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: malformed XML: no element found"),
        ("<graphml>", "line 1: malformed XML"),
        ("<html/>", "line 1: expected <graphml>, not <html>"),
        ("<graphml/>", "there is no graph"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><graphml/>', "a document type (DOCTYPE) is refused"),
        ('<graphml>\n<graph edgedefault="undirected"/></graphml>', "line 2: the graph is undirected"),
        ("<graphml><graph>\n<node/></graph></graphml>", "line 2: <node> has no 'id'"),
        ("<graphml><graph><edge source='a' target='b'/></graph></graphml>", "line 1: there is no node 'a'"),
        ("<graphml><graph><node id='a'><data key='k'>1</data></node></graph></graphml>", "there is no key 'k'"),
        ("<graphml><graph><node id='a'><graph/></node></graph></graphml>", "expected one graph"),
        ("<graphml><graph><hyperedge/></graph></graphml>", "<hyperedge> is not supported"),
        ("<graphml><graph><edge source='a' target='b' directed='false'/></graph></graphml>", "no direction"),
        ("<graphml>" + "<a>" * 200, "nested too deeply"),
        ("<graphml><default/></graphml>", "line 1: <default> stands in a <key> only"),
    ],
)
def test_broken_graphml_has_its_line(text: str, said: str) -> None:
    with pytest.raises(InstanceError) as caught:
        read_graphml(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("digraph { }", "the graph has no nodes"),
        ("digraph { a [time=x, size=1] }", "line 1: node 'a': time: 'x' is not a time"),
        ("digraph { a [time=-1, size=1] }", "node 'a': time: "),
        ("digraph { a [time=1, size=1.5] }", "node 'a': size: "),
        ("digraph { a [time=1, size=nan] }", "node 'a': size: "),
        ("digraph { a [time=1e999, size=1] }", "out of range"),
        ("digraph { a [time=1e99999999, size=1] }", "out of range"),
        ("digraph { a [time=1, size=1, workspace=big] }", "node 'a': workspace: "),
        ("digraph { a [time=1, size=1]; a -> b [size=1e30]; b [time=1] }", "edge 'a->b': size: "),
    ],
)
def test_broken_attributes_have_their_node_and_line(text: str, said: str, save: Any) -> None:
    with pytest.raises(InstanceError) as caught:
        document(text, save)
    assert said in str(caught.value)


def test_circles_are_refused_by_the_command(run: Run, save: Any) -> None:
    path = save("digraph { node [time=1, size=1]; a -> b -> a }", "circle.dot")
    run("import", "dot", path).assert_refused("circle.dot")


def test_the_commands_write_instances(run: Run, save: Any, tmp_path: Any) -> None:
    path = save("digraph { node [time=1, size=1]; a -> b }", "x.dot")
    assert run("import", "dot", path).document["tasks"][1]["reads"] == ["a"]
    output = tmp_path / "x.json"
    assert run("import", "dot", path, "-o", output, "--name", "mine").code == 0
    assert remat.load(str(output)).name == "mine"
    run("import", "graphml", path).assert_refused("line 1: malformed XML")
    run("import", "dot", path, "-o", path).assert_refused("-")
    run("import", "dot", str(tmp_path / "none.dot")).assert_refused("none.dot")
