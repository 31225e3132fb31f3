"""Every algorithm of the built-in catalogue through the exported suite, one class for each."""

import pytest

from remat.testing import AlgorithmSuite, strategies
from remat_algorithms import catalogue
from remat_algorithms.dag.catalogue import ALGORITHMS as DAG
from remat_algorithms.dag_auto.catalogue import ALGORITHMS as DAG_AUTO
from remat_algorithms.dag_ilp.catalogue import ALGORITHMS as DAG_ILP
from remat_algorithms.offload.catalogue_rules import ALGORITHMS as OFFLOAD_RULES

OPTIONS = {
    # A few slots only: rounding, and the certificate that goes with it, on small instances.
    "rotor": ({}, {"slots": 3}),
    "rotor-float": ({}, {"slots": 5}),
    # A walk after a search that settles nothing.
    "chain-best": ({}, {"iterations": 20, "states": 3}),
    "revolve-chain": ({}, {"saved": True}),
    "treeverse": ({}, {"split": "bisection"}),
    "disk-revolve": ({}, {"one_read": True}),
    "two-level": ({}, {"period": 3}),
    "two-level-async": ({}, {"period": 3}),
    "adjoint-best": ({"iterations": 20},),
    # Fewer candidates than by default, which on small instances are the same ones many times over.
    "dtr": ({"limits": 10}, {"limits": 6, "heuristic": "eq"}),
    "min-cut": ({"bans": 6},),
    "knapsack-dp": ({"levels": 6},),
    "knapsack-ilp": ({"levels": 6},),
    "knapsack-greedy": ({"levels": 6},),
    "kusumoto-exact": ({"budgets": 6},),
    "autoswap": ({}, {"grid": 1}),
    "swapadvisor": ({"iterations": 30},),
    "vdnn-all": ({}, {"saved": True}),
    "vdnn-pp": ({}, {"saved": True}),
    "tflms": ({}, {"threshold": 2, "ahead": 2}, {"ahead": 0}),
    "kusumoto-approx": ({"budgets": 6}, {"budgets": 6, "objective": "memory"}),
}


def with_disk(document):
    """Give an adjoint two storage levels, the second one unbounded: what these algorithms are for."""
    rest = {key: value for key, value in document.items() if key not in ("machine", "initial_state")}
    first = document.get("storage", [{"name": "level0", "slots": 2}])[:1]
    return rest | {"storage": [*first, {"name": "disk", "write_time": 2, "read_time": 1}]}


# Seconds for one solve, where the default of the suite would only be waited for.
TIME_LIMITS = {"dag-auto": 1.0}

ON_DISK = ("disk-revolve", "periodic-disk-revolve", "two-level")


def beside(document):
    """Let the second level work beside the processor."""
    first, second = with_disk(document)["storage"]
    return with_disk(document) | {"storage": [first, second | {"channel": "dma"}]}


INSTANCES = {name: lambda self, kind: strategies.adjoints().map(with_disk) for name in ON_DISK}
INSTANCES["two-level-async"] = lambda self, kind: strategies.adjoints().map(beside)


def beside_host(document):
    """Give an instance a second memory with links both ways, if it has no machine; and call some stages `conv`."""
    links = [
        {"source": source, "target": target, "bandwidth": bandwidth}
        for source, target, bandwidth in (("device", "host", 2), ("host", "device", 1))
    ]
    machine = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": links,
    }
    named = [stage | {"name": "conv" if k % 2 else "pool"} for k, stage in enumerate(document.get("stages", []), 1)]
    return {"machine": machine} | document | ({"stages": named} if named else {})


def instances_with_host(self, kind):
    return strategies.documents(kind).map(beside_host)


INSTANCES |= {entry.name: instances_with_host for entry in OFFLOAD_RULES}


ON_GRAPHS = {entry.name for entry in (*DAG, *DAG_AUTO, *DAG_ILP)}
"""Algorithms that rematerialise on task graphs; these draw more graphs."""


def suite(entry, *, examples, graphs, suffix=""):
    name = "Test" + entry.name.title().replace("-", "") + suffix
    content = {"algorithm": entry.name, "examples": examples, "options": OPTIONS.get(entry.name, ({},))}
    if entry.name in ON_GRAPHS:
        content["examples_of"] = lambda self, kind: graphs if kind == "dag" else examples
    if entry.name in TIME_LIMITS:
        content["time_limit"] = TIME_LIMITS[entry.name]
    if entry.name in INSTANCES:
        content["instances"] = INSTANCES[entry.name]
    return type(name, (AlgorithmSuite,), content | {"__module__": __name__})


for _entry in catalogue:
    _fast = suite(_entry, examples=10, graphs=40)
    globals()[_fast.__name__] = _fast
    _thorough = pytest.mark.slow(suite(_entry, examples=150, graphs=500, suffix="Thoroughly"))
    globals()[_thorough.__name__] = _thorough


def test_every_entry_has_a_suite():
    tested = {item.algorithm for item in globals().values() if isinstance(item, type) and item is not AlgorithmSuite}
    assert tested == {entry.name for entry in catalogue}
    assert OPTIONS.keys() <= tested
