"""Configurations of models, graphs of other programs, and profiles."""

import json
import os
import pickle
import tempfile

import remat
from remat.bridges.allocations.timeline import explain
from remat.bridges.chakra.importing import import_trace
from remat.bridges.chrome_trace.reading import read_chrome_trace
from remat.bridges.contraction_tree import import_tree
from remat.bridges.dask.importing import import_graph
from remat.bridges.dot.reading import import_dot
from remat.bridges.graphml.reading import import_graphml
from remat.bridges.memory_snapshot.reading import read_snapshot
from remat.bridges.rotor.importing import import_chain
from remat.bridges.wfcommons.importing import import_workflow
from remat.generate.models.instances import workload
from remat.generate.models.memory import Training, estimate
from remat.generate.models.reading import read_model, shipped
from tests.fuzz.readers import seeds
from tests.fuzz.readers.targets import Target

FEW = 200
"""Layers of a model up to which its memory is computed."""

DOT = b"""strict digraph "g" { node [time=1, size=2]; a [time=3, workspace=5MB]; a -> {b c} -> d [size="1MB"];
 subgraph x { e; } }"""
GRAPHML = b"""<graphml><key id="d0" for="node" attr.name="time"><default>2</default></key>
 <key id="d1" for="all" attr.name="size"><default>3</default></key><graph edgedefault="directed"><node id="a"/>
 <node id="b"><data key="d0">5</data></node>
 <edge source="a" target="b"><data key="d1">7</data></edge></graph></graphml>"""
WORKFLOW = {
    "name": "w",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "a", "id": "a", "parents": [], "children": ["b"], "inputFiles": ["f"], "outputFiles": ["g"]},
                {"name": "b", "id": "b", "parents": ["a"], "children": [], "inputFiles": ["g"], "outputFiles": []},
            ],
            "files": [{"id": "f", "sizeInBytes": 3}, {"id": "g", "sizeInBytes": 4}],
        },
        "execution": {"tasks": [{"id": "a", "runtimeInSeconds": 1.5}, {"id": "b", "runtimeInSeconds": 2}]},
    },
}
DASK = {
    "schema": "remat.dask/1",
    "tasks": [{"key": "a", "time": 1, "size": 5}, {"key": "b", "time": 2.5, "size": 3, "reads": ["a"]}],
    "outputs": ["b"],
}
CONTRACTION = {"inputs": ["ab", ["b", "c"]], "output": "ac", "sizes": {"a": 2, "b": 3, "c": 5}, "path": [[0, 1]]}
CHAIN = [[1.5, 2, 10, 10, 3, 4], [2, 3, 20, 50, 0, 1], [None, 0.5, 30, 35, None, 2]]
MEMORY = {"Device Type": 0, "Device Id": -1, "Addr": 7, "Bytes": 64, "Total Allocated": 100}
TRACE = {
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 0, "dur": 9},
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 3, "args": MEMORY},
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 8, "args": MEMORY | {"Bytes": -64}},
    ]
}
TENSOR = [3, 3, 0, 4, 4, "cpu"]
CHAKRA = {
    "nodes": [
        {
            "id": 2,
            "name": "aten::mm",
            "ctrl_deps": 1,
            "duration_micros": 3,
            "inputs": {"values": [TENSOR, [TENSOR]], "types": ["Tensor(float)", "GenericList[Tensor(float)]"]},
            "outputs": {"values": [[4, 4, 0, 4, 4, "cpu"]], "types": ["Tensor(float)"]},
            "attrs": [{"name": "op_schema", "value": "relu_(Tensor(a!) self)"}],
        }
    ]
}
EVENT = {
    "action": "alloc",
    "addr": 10,
    "size": 100,
    "frames": [{"filename": "m.py", "line": 2, "name": "f"}],
    "time_us": 1,
}
SNAPSHOT = {
    "segments": [{"device": 0, "address": 0, "blocks": [{"size": 5, "state": "active_allocated"}]}],
    "device_traces": [[EVENT, EVENT | {"action": "free_completed", "time_us": 4}]],
}


def _file(name):
    """Return a function that writes bytes to a file, and returns its path."""
    path = os.path.join(tempfile.mkdtemp(), name)

    def write(data):
        with open(path, "wb") as file:
            file.write(data)
        return path

    return write


def model_config():
    """Return the target of configurations of models."""
    write = _file("config.json")

    def read(data):
        model = read_model(write(data))
        blocks = sum(len(stack.blocks) for _, stack in model.stacks())
        if blocks <= FEW:
            try:
                estimate(workload(config=model), Training())
            except ValueError as error:
                raise remat.OptionError(str(error)) from None

    names = ("gpt2", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-3-1b", "modernbert-base", "t5-base", "whisper-small")
    words = sorted({key for fields in shipped().values() for key in fields})
    return Target(
        "model-config", read, seeds.encoded(*(shipped()[name] for name in (*names, "vit-base"))), tuple(words)
    )


def graph_text():
    """Return the target of DOT and GraphML."""
    write = _file("graph")

    def read(data):
        importing = import_graphml if data.lstrip()[:1] == b"<" else import_dot
        remat.load(importing(write(data)))

    words = (
        "digraph",
        "subgraph",
        "node",
        "edge",
        "->",
        "--",
        "time",
        "size",
        "<data",
        "<graph",
        "edgedefault",
        "&lt;",
    )
    return Target("graph-text", read, (DOT, GRAPHML), words, tree=False)


def foreign_graph():
    """Return the target of workflows, graphs of dask, contractions and chains of rotor."""
    write = _file("graph.json")

    def read(data):
        if data.lstrip()[:1] == b"[":
            remat.load(import_chain(write(data)))
            return
        known = {b'"schemaVersion"': import_workflow, b"remat.dask": import_graph}
        importing = next((known[sign] for sign in known if sign in data), import_tree)
        remat.load(importing(write(data)))

    words = ("schemaVersion", "workflow", "tasks", "files", "path", "ssa_path", "sizes", "inputs", "reads", "1.6")
    return Target("foreign-graph", read, seeds.encoded(WORKFLOW, DASK, CONTRACTION, CHAIN), words)


def profile():
    """Return the target of traces and snapshots."""
    write = _file("profile")

    def read(data):
        if data[:1] == b"\x80":
            explain(read_snapshot(write(data)), 1e9)
        elif b'"nodes"' in data:
            remat.load(import_trace(write(data), default_time=1.0))
        else:
            explain(read_chrome_trace(write(data)), 1e9)

    traces = (json.dumps(TRACE).encode(), json.dumps(CHAKRA).encode(), pickle.dumps(SNAPSHOT))
    words = (
        "traceEvents",
        "nodes",
        "[memory]",
        "Addr",
        "Bytes",
        "GenericList[",
        "Tensor(",
        "\x80\x04",
        "cos\nsystem\n",
    )
    return Target("profile", read, traces, words, tree=False)
