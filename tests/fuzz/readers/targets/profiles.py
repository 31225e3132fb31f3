"""Placement profiles: layer graphs with their splits, and layers of tensor-parallel pipelines."""

import io

from remat.bridges.placement_profiles.partitioning import import_partitioning, import_split
from remat.bridges.placement_profiles.tensor_parallel import import_layers
from remat.solving.verifying import examine
from tests.fuzz.readers import seeds
from tests.fuzz.readers.targets import Target, instances

WORDS = (
    *("maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges", "id", "name", "supportedOnFpga", "cpuLatency"),
    *("fpgaLatency", "isBackwardNode", "colorClass", "size", "sourceId", "destId", "cost", "fpgas", "cpus"),
    *("maxDevices", "maxMemoryPerDevice", "bandwidth", "TMPCs", "timePerSample", "parameterSize", "memoryUsageA"),
    *("memoryUsageB", "communicationCost", "vanilla", "1", "2", "syncTimeFw"),
)


def _graph():
    nodes = [
        {"id": k, "name": f"n{k}", "supportedOnFpga": 1, "cpuLatency": 10 * k, "fpgaLatency": k, "colorClass": k % 3}
        | {"size": 10, "isBackwardNode": k // 4}
        for k in range(1, 5)
    ]
    ends = ((1, 2, 0.5, 5), (1, 3, 0.5, 5), (2, 3, 1, 10), (3, 4, 2, 40))
    edges = [dict(zip(("sourceId", "destId", "cost", "size"), edge, strict=True)) for edge in ends]
    return {"maxSizePerFPGA": 100, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges}


def layer_graph():
    """Return the target of layer graphs."""

    def read(data):
        imported = import_partitioning(io.BytesIO(data))
        instances.check(imported.instance)

    bare = _graph() | {"edges": [], "maxCPUs": 0}
    return Target("layer-graph", read, seeds.encoded(_graph(), bare), WORDS)


def split():
    """Return the target of splits of a layer graph."""
    imported = import_partitioning(_graph())

    def read(data):
        found = import_split(imported, io.BytesIO(data))
        examine(imported.instance, found.schedule)

    split = {"fpgas": [{"nodes": [1, 3]}, {"nodes": [2]}], "cpus": [{"nodes": [4]}]}
    return Target("split", read, seeds.encoded(split, {"fpgas": [{"nodes": [1, 2, 3, 4]}]}), WORDS)


def tensor_parallel():
    """Return the target of layers of tensor-parallel pipelines."""

    def way(time, name="vanilla"):
        sizes = {"parameterSize": 10, "memoryUsageA": 12, "memoryUsageB": 30}
        return {"id": name, "timePerSample": time, "syncTimeFw": 0} | sizes

    nodes = [
        {"id": k, "name": "layer", "TMPCs": {"1": [way(0.3), way(0.4, "activation recomp")], "2": [way(0.2)]}}
        for k in range(3)
    ]
    edges = [{"sourceId": k, "destId": k + 1, "communicationCost": 5 + k} for k in range(2)]
    document = {"maxDevices": 2, "maxMemoryPerDevice": 1000, "bandwidth": 10, "nodes": nodes, "edges": edges}

    def read(data):
        instances.check(import_layers(io.BytesIO(data)).instance)

    return Target("tensor-parallel", read, seeds.encoded(document), WORDS)
