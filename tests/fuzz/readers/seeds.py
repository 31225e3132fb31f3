"""Documents that are read: small ones of every kind, shipped ones, and the words that formats know."""

import json
import re
from functools import cache

from remat.instance import json_schema
from remat.instance.shipped import examples
from tests.fuzz import forms

MOST = 12_000
"""Bytes of a shipped instance that is a seed."""

UNIT = {"time": "unit", "memory": "unit"}


def encoded(*documents):
    """Return documents as JSON."""
    return tuple(json.dumps(document).encode() for document in documents)


def chain():
    """Return a chain with variants, parameters, optimizer states and a host."""
    stage = {"forward_time": 1, "backward_time": 2, "output_size": 4, "saved_size": 2, "name": "conv"}
    more = {"parameter_size": 4, "optimizer_size": 8, "update_time": 1, "parameter_gradient_size": 4}
    variants = [{"name": "slow", "saved_size": 1, "backward_time": 3}, {"saved_size": 0}]
    return {
        "schema": "remat.instance/3",
        "kind": "chain",
        "name": "chain",
        "input_size": 2,
        "units": UNIT,
        "stages": [stage | {"repeat": 2}, stage | more, stage | {"variants": variants, "backward_reads": ["input"]}],
        "loss": {"time": 1, "workspace": 2},
        "machine": machine(),
        "optimizer_memory": "host",
    }


def sharded():
    """Return a chain of equal ranks whose gradients are exchanged in buckets."""
    layer = {"forward_time": 2, "backward_time": 4, "output_size": 4, "parameter_size": 8, "optimizer_size": 8}
    return {
        "schema": "remat.instance/3",
        "kind": "chain",
        "name": "sharded",
        "input_size": 2,
        "stages": [layer | {"update_time": "1us"}, layer],
        "sharding": {"data": 4, "zero": 2, "bucket": "4B"},
    }


def graph():
    """Return a task graph: several processors, flags, parallel tasks, placed inputs and outputs."""
    tasks = [
        {"id": "a", "time": 2, "reads": ["x"], "writes": ["u"], "workspace": 3, "phase": "forward"},
        {"id": "b", "time": 1, "reads": ["u"], "size": 2, "in_place": True},
        {"id": "c", "time": 3, "reads": ["u", "b"], "size": 1, "recomputable": False, "parallel": {"max": 2}},
        {"id": "d", "time": 1, "reads": ["c"], "writes": ["y"], "once": True, "origin": {"module": "net"}},
    ]
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "name": "graph",
        "values": [
            {"id": "x", "size": 2},
            {"id": "u", "size": 3, "shape": [1, 2], "dtype": "f"},
            {"id": "y", "size": 1},
        ],
        "tasks": tasks,
        "inputs": [{"value": "x", "memory": "host"}],
        "outputs": ["y"],
        "machine": machine(),
    }


def samples():
    """Return a stream of samples through a graph on two types of processors."""
    return {
        "schema": "remat.instance/3",
        "kind": "dag",
        "name": "samples",
        "units": UNIT,
        "inputs": [{"value": "w", "memory": "any"}],
        "values": [{"id": "w", "size": 3}, {"id": "o", "size": 1}, {"id": "p", "size": 1}],
        "tasks": [
            {"id": "first", "time": {"big": 2, "small": 4}, "reads": ["w"], "writes": ["o"]},
            {"id": "second", "time": {"big": 3}, "reads": ["o"], "writes": ["p"]},
        ],
        "machine": {
            "memories": [{"name": "host"}, {"name": "m0", "capacity": 100}],
            "processors": [
                {"name": "cpu", "memory": "host", "type": "small"},
                {"name": "gpu", "memory": "m0", "type": "big"},
            ],
            "links": [{"source": "host", "target": "m0", "bandwidth": 1}, {"source": "m0", "target": "host"}],
        },
        "stream": 4,
    }


def machine():
    """Return a machine with everything that machines have."""
    return {
        "memories": [{"name": "device", "capacity": 1000, "static": 1}, {"name": "host"}, {"name": "disk"}],
        "processors": [{"name": "gpu", "memory": "device"}, {"name": "cpu", "memory": "device", "speed": 0.5}],
        "links": [
            {"source": "device", "target": "host", "bandwidth": 2, "latency": 1, "channel": "bus"},
            {"source": "host", "target": "device", "bandwidth": 2.5, "delay": 1, "channel": ["bus", "gpu"]},
            {"source": "host", "target": "disk", "bandwidth": 1, "ratio": 0.5, "codec": 10},
        ],
    }


def cluster():
    """Return a cluster with everything that clusters have."""
    return {
        "devices": [{"name": "t", "count": 2, "memory": "1GB"}, {"name": "u", "type": "t", "count": 2}],
        "levels": [{"devices": 2, "bandwidth": "10GB/s"}, {"bandwidth": "1GB/s", "latency": "1us", "delay": 0}],
        "transfers": "overlap",
        "host": {"memory": "8GB", "bandwidth": "1GB/s"},
    }


def pipeline(**changes):
    """Return a pipeline."""
    layer = {"forward_time": 1, "backward_time": 1, "weight_time": 1, "output_size": 1, "saved_size": 2}
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "name": "pipeline",
        "units": UNIT,
        "micro_batches": 4,
        "layers": [layer | {"repeat": 3}, layer | {"name": "last", "parameter_size": 2, "optimizer_size": 4}],
        "cluster": {"devices": [{"name": "gpu", "count": 2, "memory": 100}], "levels": [{"delay": 1}]},
    } | changes


def pipelines():
    """Return pipelines of all sorts."""
    whole = {"forward_time": {"t": 1, "u": 2}, "backward_time": 2, "output_size": 1, "saved_size": 2}
    tensor = {"tensor": {"2": {"forward_time": 1, "backward_time": 1, "output_size": 1, "saved_size": 1}}}
    plain = {"forward_time": 2, "backward_time": 2, "output_size": 1, "saved_size": 2, "parameter_size": 3}
    slices = [{"tokens": 1, "layers": [{"forward_time": 1, "backward_time": 1}]} | more for more in ({}, {"before": 1})]
    return (
        pipeline(),
        pipeline(cluster=cluster(), layers=[whole, whole], units={"time": "us"}),
        pipeline(name="tensor", layers=[plain | tensor, plain]),
        pipeline(name="stream", weights="double", update_every=4, layers=[plain, plain]),
        pipeline(name="stash", weights="stash", layers=[plain, plain]),
        pipeline(name="slices", layers=[plain], tokens={"length": 2, "slices": slices, "cut": [1, 1]}),
    )


@cache
def instances():
    """Return instances of every kind."""
    drawn = [forms.document(seed)[0] for seed in range(40)]
    shipped = [path.read_bytes() for path in examples().values() if path.stat().st_size <= MOST]
    join = {
        "schema": "remat.instance/3",
        "kind": "join",
        "chains": [{"input_size": 1, "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 1}]}] * 2,
        "loss": {"time": 1},
    }
    return (*encoded(*drawn, chain(), sharded(), graph(), samples(), join, *pipelines()), *shipped)


@cache
def words():
    """Return the keys and the fixed values of the formats of instances."""
    text = json.dumps(json_schema())
    found = {*re.findall(r'"([a-z_A-Z]{1,40})":', text), *re.findall(r'"(?:const|default)": "([^"]+)"', text)}
    for listed in re.findall(r'"enum": \[([^\]]*)\]', text):
        found |= {word.strip(' "') for word in listed.split(",")}
    return tuple(sorted(found - {"type", "$ref", "anyOf", "properties", "items", "title"} | {"type"}))
