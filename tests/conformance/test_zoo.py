"""Every algorithm of the built-in catalogue through the exported suite, one class for each."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import strategies as st

from remat.schedule.document import Run
from remat.testing import AlgorithmSuite, cases, strategies
from remat_algorithms import catalogue as everything
from remat_algorithms.dag.anytime.catalogue import ALGORITHMS as DAG_AUTO
from remat_algorithms.dag.catalogue import ALGORITHMS as DAG
from remat_algorithms.dag.programs.catalogue import ALGORITHMS as DAG_ILP
from remat_algorithms.offload.rules.catalogue import ALGORITHMS as OFFLOAD_RULES
from remat_algorithms.parallel.placement.catalogue import ALGORITHMS as PLACEMENT
from tests.algorithms.chain.joins.documents import as_dag
from tests.algorithms.offload import trained
from tests.algorithms.parallel.placement.streams import star
from tests.verifier.sample_streams import stream

OPTIONS = {
    # A few slots only: rounding, and the certificate that goes with it, on small instances.
    "rotor-float": ({}, {"slots": 5}),
    # A walk after a search that settles nothing.
    "chain-best": ({}, {"iterations": 20, "states": 3}),
    "revolve-chain": ({}, {"saved": True}),
    "treeverse": ({}, {"split": "bisection"}),
    "disk-revolve": ({}, {"one_read": True}),
    "two-level": ({}, {"period": 3}),
    "two-level-async": ({}, {"period": 3}),
    "async-multistage": ({}, {"interval": 3}),
    "adjoint-best": ({"iterations": 20},),
    "l2l": ({}, {"recompute": False}, {"activations": "device"}),
    "zero": ({}, {"keep": True, "early": True}, {"prefetch": False, "recompute": True}),
    "zero-offload": ({}, {"prefetch": False, "recompute": True}),
    "zero-infinity": ({}, {"activations": "host"}),
    "granular-offload": ({}, {"recompute": True}),
    "interleaved-1f1b": ({}, {"chunks": 1}),
    "madpipe": ({}, {"special": False, "blocks": 3}, {"labels": 1}),
    "pipeline-ilp": ({"work": 0.1}, {"work": 0.1, "contiguous": True}, {"work": 0.1, "blocks": 3}),
    "weight-offload": ({"evaluations": 20},),
    "offmate": ({"evaluations": 20},),
    # Fewer candidates than by default, which on small instances are the same ones many times over.
    "dtr": ({"limits": 10}, {"limits": 6, "heuristic": "eq"}),
    "min-cut": ({"bans": 6},),
    "knapsack-dp": ({"levels": 6},),
    "knapsack-ilp": ({"levels": 6},),
    "knapsack-greedy": ({"levels": 6},),
    "offload-dp": ({"slots": 10},),
    "pofo": ({"slots": 10},),
    "remat-offload-best": ({"iterations": 20},),
    "dag-offload-best": ({"iterations": 20}, {"iterations": 5, "reorder": False}),
    "offload-exact": ({"copies": 1, "work": 0.2}, {"copies": 1, "recompute": True, "work": 0.2}),
    "kusumoto-exact": ({"budgets": 6},),
    "autoswap": ({}, {"grid": 1}),
    "swapadvisor": ({"iterations": 30},),
    "vdnn-all": ({}, {"saved": True}),
    "vdnn-dyn": ({}, {"saved": True}),
    "vdnn-pp": ({}, {"saved": True}),
    "tflms": ({}, {"threshold": 2, "ahead": 2}, {"ahead": 0}),
    "tarnawski-dp": ({}, {"sets": 4}),
    "tarnawski-ip": ({"work": 1.0, "bound_work": 0.5},),
    "tarnawski-latency": ({"work": 1.0},),
    "placement-bound": ({"work": 1.0},),
    "kusumoto-approx": ({"budgets": 6}, {"budgets": 6, "objective": "memory"}),
    "poet": ({"work": 0.1}, {"work": 0.1, "start": False, "stages": 3}),
    "auto-perf-maxing": ({}, {"inner": "program", "split": "even"}, {"inner": "knapsack", "layers": "narrow"}),
    "layers": ({}, {"split": "even", "layers": "narrow", "count": 2}),
}


def with_disk(document):
    """Give an adjoint two storage levels, the second one unbounded: what these algorithms are for."""
    rest = {key: value for key, value in document.items() if key not in ("machine", "initial_state")}
    first = document.get("storage", [{"name": "level0", "slots": 2}])[:1]
    return rest | {"storage": [*first, {"name": "disk", "write_time": 2, "read_time": 1}]}


# Work decides in the fast tests, not the clock: what a constraint program adds within a blink, and few rounds.
FAST_OPTIONS = {
    "tarnawski-ip": ({"moves": 500, "work": 0.05, "bound_work": 0.05},),
    "tarnawski-latency": ({"moves": 50, "work": 0.05},),
    "placement-replicated": ({"moves": 500, "nodes": 20},),
    "placement-bound": ({"moves": 500, "work": 0.05},),
    "pipe-search": ({"moves": 20}, {"moves": 10, "placement": "chain"}),
    "pipe-plan": ({"moves": 10}, {"moves": 10, "placement": "v", "zoo": False}),
    "tessel": ({"work": 0.005, "placement": "chain"},),
    "optpipe": ({"work": 0.005}, {"work": 0.005, "placement": "v"}),
    "madpipe": ({"work": 0.005}, {"special": False}),
    "pipeline-ilp": ({"work": 0.005}, {"work": 0.005, "contiguous": True, "blocks": 3}),
    "pipe-exact": ({"moves": 20, "work": 0.01}, {"moves": 20, "work": 0.01, "placement": "v"}),
    # Without its constraint programs, which are those of `offload-exact`.
    "adjoint-best": ({"iterations": 10, "moves": 20_000, "window": 1000, "work": 0},),
    "chain-best": ({"iterations": 200, "states": 2_000}, {"iterations": 20, "states": 3}),
    "chain-exact": ({"states": 2_000},),
    "dag-exact": ({"states": 1_000},),
    "knapsack-ilp": ({"levels": 3},),
    "dag-auto": ({"iterations": 20},),
    "dag-offload-best": ({"iterations": 5},),
    "offload-exact": ({"copies": 1, "work": 0.002}, {"copies": 1, "recompute": True, "work": 0.002}),
    "poet": ({"work": 0.02}, {"work": 0.02, "start": False, "stages": 3}),
}

# Seconds for one solve, where the default of the suite would only be waited for. The fast suites end long before
# theirs, whatever else the machine does.
TIME_LIMITS = {"dag-auto": 1.0}
AMPLE = 600.0

OFFLOADING = ("offload-greedy", "offload-dp", "pofo", "remat-offload-best")
ON_DISK = ("disk-revolve", "periodic-disk-revolve", "two-level")


def beside(document):
    """Let the second level work asynchronously."""
    first, second = with_disk(document)["storage"]
    return with_disk(document) | {"storage": [first, second | {"channel": "dma"}]}


def beside_host(document):
    """Give an instance without a machine a second memory with links in both directions; call some stages `conv`."""
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


def small(kind):
    """Draw what an exponential search is done with soon, half of it on a machine with a host."""
    match kind:
        case "adjoint":
            return strategies.adjoints(largest=4)
        case "chain":
            return strategies.chains(largest=3) | strategies.chains(largest=3, plain=True).map(beside_host)
        case "join":
            return strategies.joins(largest=2) | strategies.joins(largest=2, plain=True).map(beside_host)
    if kind != "dag":
        raise ValueError(f"no small instances of kind {kind!r}: draw them here")
    return strategies.dags(largest=4) | strategies.dags(largest=4, plain=True).map(beside_host)


def with_parameters(home):
    """Return a strategy of chains with parameters at `home`, and a host whose processor updates them."""

    def build(document, parameters, gradient, optimizer, update, copied, bandwidth):
        at = itertools.count()
        sizes = {"parameter_size": parameters, "optimizer_size": optimizer, "update_time": update}
        sizes |= {"parameter_gradient_size": gradient}
        stages = [
            stage | {key: listed[next(at) % len(listed)] for key, listed in sizes.items()}
            for stage in document["stages"]
        ]
        return document | {
            "schema": "remat.instance/2",
            "stages": stages,
            "machine": trained.machine(down=bandwidth, up=bandwidth + 1),
            "parameter_memory": home,
            "optimizer_memory": "host",
            "master_copy": copied,
        }

    sizes, some = st.lists(st.integers(1, 9), min_size=1, max_size=5), st.lists(st.integers(0, 9), min_size=1)
    return st.builds(build, strategies.chains(), sizes, some, some, some, st.booleans(), st.integers(1, 3))


def of_ranks(parameters, states):
    """Return a strategy of chains with parameters and states at these homes, often of one of several ranks."""

    def build(document, ranks, zero, bucket, bandwidth, late):
        machine = document["machine"]
        if "nvme" in (parameters, states):
            links = [{"source": one, "target": other} for one, other in (("host", "nvme"), ("nvme", "host"))]
            machine = machine | {
                "memories": [*machine["memories"], {"name": "nvme"}],
                "links": [*machine["links"], *(link | {"bandwidth": bandwidth} for link in links)],
            }
        document = document | {"schema": "remat.instance/3", "parameter_memory": parameters, "optimizer_memory": states}
        document |= {"machine": machine}
        if ranks > 1:
            document["sharding"] = {"data": ranks, "zero": zero, "bucket": bucket}
            way = {"source": "device", "target": "device", "bandwidth": bandwidth}
            document["machine"] = machine | {"links": [*machine["links"], way]}
        if late is not None and document["master_copy"] and all(s["optimizer_size"] for s in document["stages"]):
            document["staleness"] = late
        elif late is not None:
            document["staleness"] = 0
        return document

    few = st.integers(0, 9)
    late = st.sampled_from([None, None, 0, 1])
    return st.builds(
        build, with_parameters("device"), st.integers(1, 4), st.integers(0, 3), few, st.integers(1, 3), late
    )


def without_end(strategy):
    """Leave out steps that follow each other without end."""
    return strategy.map(lambda document: {key: value for key, value in document.items() if key != "staleness"})


INSTANCES = {name: lambda self, kind: strategies.adjoints().map(with_disk) for name in ON_DISK}
INSTANCES |= {name: lambda self, kind: small(kind) for name in ("offload-exact", "poet")}
INSTANCES["zero"] = lambda self, kind: of_ranks("device", "device")
INSTANCES["zero-offload"] = lambda self, kind: st.one_of(with_parameters("device"), of_ranks("device", "host"))
INSTANCES["zero-infinity"] = lambda self, kind: st.one_of(of_ranks("nvme", "nvme"), of_ranks("host", "nvme"))
INSTANCES["granular-offload"] = lambda self, kind: of_ranks("any", "any")
INSTANCES["l2l"] = lambda self, kind: st.one_of(with_parameters("host"), of_ranks("host", "host"))
INSTANCES["weight-offload"] = lambda self, kind: st.one_of(
    with_parameters("device"), with_parameters("host"), without_end(of_ranks("device", "host"))
)
INSTANCES["offmate"] = lambda self, kind: st.one_of(with_parameters("device"), with_parameters("host"))
INSTANCES |= {
    name: lambda self, kind: strategies.adjoints().map(beside) for name in ("two-level-async", "async-multistage")
}


def instances_with_host(self, kind):
    return strategies.documents(kind).map(beside_host)


def hosted(document):
    """Give a pipeline whose steps end with its backwards a host."""
    document = {key: value for key, value in document.items() if key not in ("exchange", "tokens", "sharding")}
    layers = [{key: value for key, value in layer.items() if key != "update_time"} for layer in document["layers"]]
    return document | {"layers": layers, "cluster": {"host": {"bandwidth": 2}} | document["cluster"]}


HOSTED = ("pipeoffload", "optpipe")
INSTANCES |= {name: lambda self, kind: strategies.pipelines(streams=False).map(hosted) for name in HOSTED}


def joined(self, kind):
    """Draw joins, as they are or written out as task graphs."""
    return strategies.joins() if kind == "join" else strategies.joins().map(as_dag)


def moderate_join(self, kind):
    return cases.moderate("join") if kind == "join" else as_dag(cases.moderate("join"))


def placed(self, kind):
    """Draw streams of samples, on any machine or around a host, and pipelines with forwards only."""
    numbers = st.integers(0, 10**6).map(random.Random)
    if kind == "dag":
        loose = numbers.map(lambda chance: stream(chance, tasks=4, room=chance.choice([None, (8, 30)]), copies=2))
        return loose | numbers.map(lambda chance: star(chance, host=True, room=chance.choice([None, (6, 20)])))
    pipelines = strategies.pipelines(largest=4, streams=False).map(forwards_only)
    return pipelines | strategies.pipelines(largest=4) if self.algorithm == "tarnawski-dp" else pipelines


def forwards_only(document):
    """Leave the backwards of a pipeline out."""
    kept = ("name", "reads", "repeat", "forward_time", "output_size", "forward_workspace", "parameter_size")
    layers = [{key: layer[key] for key in kept if key in layer} for layer in document["layers"]]
    own = {key: document[key] for key in ("schema", "kind", "units", "micro_batches") if key in document}
    cluster = {key: document["cluster"][key] for key in ("devices", "levels") if key in document["cluster"]}
    return own | {"weights": "fixed", "layers": layers, "cluster": cluster, "copies": document.get("copies", 1)}


def moderate_stream(self, kind):
    if kind == "dag":
        return star(random.Random(1), tasks=8, devices=3)
    document = cases.moderate(kind)
    return forwards_only(document) if kind == "pipeline" else document


def once(self, kind):
    """Draw graphs that run once, plain ones, too."""
    numbers = st.integers(0, 10**6).map(random.Random)
    devices = numbers.map(lambda chance: star(chance, host=True, room=chance.choice([None, (8, 20)])))
    return strategies.dags(largest=5) | devices.map(lambda document: document | {"stream": None})


INSTANCES |= {entry.name: placed for entry in PLACEMENT if entry.streams}
INSTANCES["tarnawski-latency"] = once
INSTANCES["join-dp"] = joined
INSTANCES |= dict.fromkeys((*OFFLOADING, *(entry.name for entry in OFFLOAD_RULES)), instances_with_host)


def short(self, kind):
    """Return the first part of the moderate instance: constraint and integer programs are done with it soon."""
    document = cases.moderate(kind)
    match kind:
        case "chain":
            return document | {"stages": document["stages"][: 10 if self.algorithm.startswith("chain") else 5]}
        case "adjoint":
            return document | {"steps": 12 if self.algorithm == "adjoint-best" else 7}
        case "dag":
            return document | {"tasks": document["tasks"][:10], "outputs": ["t9"]}
        case "tree":
            return document | {key: document[key][:15] for key in ("parent", "output_size", "workspace")}
        case "pipeline":
            return document | {"layers": document["layers"][:4], "micro_batches": 4}
        case "join":
            return document | {"chains": [chain | {"stages": chain["stages"][:2]} for chain in document["chains"]]}
    raise ValueError(f"no short instance of kind {kind!r}: make one here")


PROGRAMS = {"adjoint-best", "checkmate", "checkmate-lp", "moccasin", "offload-exact", "poet", "dag-auto"}
PROGRAMS |= {"chain-best", "chain-exact", "pipe-search", "pipe-exact", "tessel", "madpipe", "pipeline-ilp", "optpipe"}
PROGRAMS |= {"pipe-plan", "knapsack-ilp", "dag-offload-best"}

ON_GRAPHS = {entry.name for entry in (*DAG, *DAG_AUTO, *DAG_ILP)}
"""Algorithms that rematerialise on task graphs; these draw more graphs."""


class GraphSuite(AlgorithmSuite):
    """Checks for algorithms that recompute tasks of task graphs."""

    def test_schedules_are_valid(self, kind, given):
        """Schedules are valid and contain no unused run."""
        super().test_schedules_are_valid(kind, given)

        def check(document, rungs):
            for rung in rungs:
                assert not (found := runs_for_nothing(rung.result)), f"no task reads the results of {found}"

        self._each(kind, given, check)


def runs_for_nothing(result):
    """Name the runs all of whose values are dropped unread, and that are not the only ones of a required task."""
    graph, made, used, runs = result.graph, {}, set(), []
    needed = {graph.tasks[task] for task in np.flatnonzero(graph.required | graph.once)}
    for index, step in enumerate(result.steps):
        if isinstance(step, Run):
            runs.append((index, step.task))
            task = graph.task(step.task)
            used |= {made[value] for value in graph.reads[task].tolist() if value in made}
            made |= dict.fromkeys(graph.writes[task].tolist(), index)
        for name in getattr(step, "drop", None) or getattr(step, "values", ()):
            made.pop(graph.value(name), None)
    used |= set(made.values())  # what is there at the end
    count = Counter(task for _, task in runs)
    return [task for index, task in runs if index not in used and (task not in needed or count[task] > 1)]


def suite(entry, *, examples, graphs, options, suffix="", **more):
    name = "Test" + entry.name.title().replace("-", "") + suffix
    content = {"algorithm": entry.name, "examples": examples, "options": options.get(entry.name, ({},))}
    # What is for any task graph meets joins as one more kind of graph: a few of them do.
    joins = examples if entry.name == "join-dp" else (examples + 1) // 2
    many = graphs if entry.name in ON_GRAPHS else examples
    content["examples_of"] = lambda self, kind: {"dag": many, "join": joins}.get(kind, examples)
    if entry.name in TIME_LIMITS:
        content["time_limit"] = TIME_LIMITS[entry.name]
    if entry.name == "join-dp":
        content["moderate"] = moderate_join
    if entry.streams:
        content["moderate"] = moderate_stream
    if entry.name in INSTANCES:
        content["instances"] = INSTANCES[entry.name]
    base = GraphSuite if entry.name in ON_GRAPHS else AlgorithmSuite
    return type(name, (base,), content | more | {"__module__": __name__})


catalogue = [entry for entry in everything if entry.kinds != ("layout",)]
"""All algorithms that answer with schedules; layouts have separate tests (`tests.algorithms.layout`)."""

for _entry in catalogue:
    _few = 2
    _more = {"time_limit": AMPLE}
    _more |= {"moderate": short} if _entry.name in PROGRAMS else {}
    _more |= {"sparing": True}
    _fast = suite(_entry, examples=_few, graphs=2 * _few, options=OPTIONS | FAST_OPTIONS, **_more)
    globals()[_fast.__name__] = _fast
    _thorough = pytest.mark.slow(suite(_entry, examples=150, graphs=500, options=OPTIONS, suffix="Thoroughly"))
    globals()[_thorough.__name__] = _thorough


def test_every_entry_has_a_suite():
    tested = {item.algorithm for item in globals().values() if isinstance(item, type) and hasattr(item, "algorithm")}
    assert tested == {entry.name for entry in catalogue}
    assert OPTIONS.keys() | FAST_OPTIONS.keys() <= tested
