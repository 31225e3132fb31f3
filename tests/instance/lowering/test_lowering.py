"""Lowering against the independent one of the oracles, for every kind and every field."""

import re

import numpy as np
import pytest
from hypothesis import given, settings

from remat.instance import load
from remat.instance.lowering import lower, machine_of
from tests.instance.documents import adjoints, chains, dags, joins, pipelines, trees
from tests.oracles import lowering


def plain_graph(graph, machine):
    """Describe a product graph in the oracle's terms: names, not indices."""
    first = machine.memories[0].name
    tasks = {}
    by_type = [] if graph.times is None else list(zip(graph.types, graph.times, strict=True))
    for index, name in enumerate(graph.tasks):
        most = 1 if graph.parallel_max is None else int(graph.parallel_max[index])
        alpha = 1.0 if graph.parallel_alpha is None or most == 1 else float(graph.parallel_alpha[index])
        tasks[name] = {
            "time": graph.time[index].item(),
            "reads": sorted(graph.values[value] for value in graph.reads[index]),
            "writes": sorted(graph.values[value] for value in graph.writes[index]),
            "workspace": int(graph.workspace[index]),
            "in_place": bool(graph.in_place[index]),
            "required": bool(graph.required[index] or graph.once[index]),
            "once": bool(graph.once[index]),
            "repeatable": bool(graph.recomputable[index] and not graph.once[index]),
            "parallel": (most, alpha),
            "times": {kind: row[index].item() for kind, row in by_type if row[index] >= 0},
            "parts": [
                (
                    sorted(graph.values[value] for value in part.reads),
                    sorted(graph.values[value] for value in part.writes),
                    part.memory,
                )
                for part in graph.parts.get(index, ())
            ],
        }
    return {
        "placeable": {
            graph.values[place.value]: (
                place.copies,
                None if place.successor is None else graph.values[place.successor],
            )
            for place in graph.placeable
        },
        "tasks": tasks,
        "values": {name: int(graph.size[index]) for index, name in enumerate(graph.values)},
        "inputs": sorted((graph.values[place.value], place.memory or first) for place in graph.inputs),
        "outputs": sorted((graph.values[place.value], place.memory or first) for place in graph.outputs),
        "pinned": sorted(graph.values[value] for value in graph.pinned),
        "static": graph.static_memory,
    }


def plain_oracle(graph, types=()):
    """Describe an oracle graph in the same terms; of times by type those of types that there are."""
    tasks = {}
    by_type = any(
        task.times is not None and (set(task.times) < set(types) or len({*task.times.values()}) > 1)
        for task in graph.tasks.values()
    )
    for name, task in graph.tasks.items():
        parallel = task.parallel or {"max": 1}
        most = parallel["max"]
        tasks[name] = {
            "time": task.time,
            "reads": sorted(task.reads),
            "writes": sorted(task.writes),
            "workspace": task.workspace,
            "in_place": task.in_place,
            "required": task.required or task.once,
            "once": task.once,
            "repeatable": task.recomputable and not task.once,
            "parallel": (most, 1.0 if most == 1 else float(parallel.get("alpha", 1))),
            "times": (dict.fromkeys(types, task.time) if task.times is None else task.times) if by_type else {},
            "parts": [(sorted(reads), sorted(writes), place) for reads, writes, place in task.parts],
        }
    return {
        "placeable": {name: (graph.copies, graph.follows.get(name)) for name in graph.placeable},
        "tasks": tasks,
        "values": graph.values,
        "inputs": sorted(graph.inputs),
        "outputs": sorted(graph.outputs),
        "pinned": sorted(graph.pinned),
        "static": graph.static,
    }


def plain_machine(machine):
    """The machine without the order of its parts, but for what is first."""
    return {
        "memories": the_first_then([(memory.name, memory.capacity) for memory in machine.memories]),
        "processors": the_first_then([(p.name, machine.memories[p.memory].name, p.speed) for p in machine.processors]),
        "types": sorted(p.type for p in machine.processors if p.type),
        "links": sorted(
            (
                machine.memories[link.source].name,
                machine.memories[link.target].name,
                link.bandwidth,
                link.latency,
                link.delay,
                machine.resources[machine.resource_of_link[index]],
            )
            for index, link in enumerate(machine.links)
        ),
    }


def the_first_then(listed):
    """The working memory or the reference processor; the order of the others is no matter here."""
    first, *others = listed
    return [first, *sorted(others, key=lambda one: one[0])]


def plain_oracle_machine(machine):
    return {
        "memories": the_first_then(machine.memories.items()),
        "processors": the_first_then(
            [(name, memory, machine.speeds.get(name, 1)) for name, memory in machine.processors.items()]
        ),
        "types": sorted(kind for kind in machine.types.values() if kind),
        "links": sorted(
            (
                link.source,
                link.target,
                link.bandwidth,
                link.latency,
                link.delay,
                link.channel if isinstance(link.channel, str) else f"{link.source}->{link.target}",
            )
            for link in machine.links
        ),
    }


def agree(document):
    """Compare both lowerings of one document; return the product's graph and machine."""
    instance = load(document)
    graph, machine = lower(instance), machine_of(instance)
    assert plain_machine(machine) == plain_oracle_machine(lowering.machine(document))
    types = set(lowering.machine(document).types.values())
    assert plain_graph(graph, machine) == plain_oracle(lowering.lower(document), types)
    return graph, machine


QUICK = settings(max_examples=60, deadline=None)


@QUICK
@given(chains())
def test_chains_lower_like_the_oracle(document):
    graph, _ = agree(document)
    # The order of tasks is the order of a run without recomputation, forwards first.
    variants = [len(stage.get("variants", ())) for stage in document["stages"] for _ in range(stage.get("repeat", 1))]
    ways = []
    for i, count in enumerate(variants, 1):
        ways += [f"{i}.{v}" for v in range(1, count + 1)] if count > 1 else [str(i)]
    assert list(graph.tasks) == [
        *(f"F{i}" for i in range(1, len(variants) + 1)),
        *(f"Fe{way}" for way in ways),
        "loss",
        *(f"B{way}" for way in ways),
    ]
    for names in (graph.tasks, graph.values):
        assert [names.find(name) for name in names] == list(range(len(names)))


@settings(max_examples=200, deadline=None)
@given(chains(trained=True, sharded=True))
def test_chains_whose_states_are_shared_out(document):
    graph, _ = agree(document)
    for names in (graph.tasks, graph.values):
        assert [names.find(name) for name in names] == list(range(len(names)))


@QUICK
@given(chains(trained=True))
def test_chains_with_parameters(document):
    graph, _ = agree(document)
    stages = [stage for stage in document["stages"] for _ in range(stage.get("repeat", 1))]
    trained = [i for i, stage in enumerate(stages, 1) if "parameter_size" in stage]
    bare = lower(load(document | {"stages": [without_parameters(stage) for stage in document["stages"]]}))
    assert list(graph.tasks) == [*bare.tasks, *(f"U{i}" for i in trained)]
    assert list(graph.values)[: len(bare.values)] == list(bare.values)
    for names in (graph.tasks, graph.values):
        assert [names.find(name) for name in names] == list(range(len(names)))


def without_parameters(stage):
    return {key: value for key, value in stage.items() if not key.startswith(("parameter", "optimizer", "update"))}


def test_two_stages_with_parameters():
    """Check the table of docs/reference/formats.md: reads and writes of each task of a chain with parameters."""
    stage = {"forward_time": 1, "backward_time": 2, "output_size": 3, "saved_size": 4}
    document = {"schema": "remat.instance/2", "kind": "chain", "input_size": 5, "optimizer_memory": "host"}
    document["machine"] = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}, {"name": "cpu", "memory": "host", "speed": 0.25}],
    }
    document["stages"] = [stage | {"parameter_size": 6, "optimizer_size": 18, "update_time": 7}, stage]
    graph, _ = agree(document)
    tasks = {
        name: (
            [graph.values[value] for value in graph.reads[task]],
            [graph.values[value] for value in graph.writes[task]],
        )
        for task, name in enumerate(graph.tasks)
    }
    assert tasks["F1"] == (["x0", "w1"], ["x1"])
    assert tasks["Fe1"] == (["x0", "w1"], ["x1", "s1"])
    assert tasks["B1"] == (["y1", "x0", "x1", "s1", "w1"], ["y0", "g1"])
    assert tasks["U1"] == (["w1", "g1", "o1"], ["nw1", "no1"])
    assert tasks["F2"] == (["x1"], ["x2"])
    assert "U2" not in tasks
    sizes = {name: int(size) for name, size in zip(graph.values, graph.size, strict=True)}
    assert [sizes[name] for name in ("w1", "g1", "o1", "nw1", "no1")] == [6, 6, 18, 6, 18]
    places = {(graph.values[place.value], place.memory) for place in (*graph.inputs, *graph.outputs)}
    assert places == {("x0", None), ("w1", None), ("o1", "host"), ("y0", None), ("nw1", None), ("no1", "host")}

    copied = lower(load(document | {"master_copy": True}))
    assert [copied.values[value] for value in copied.reads[copied.task("U1")]] == ["g1", "o1"]

    # A gradient of no bytes still keeps the update behind the backward.
    document["stages"][0]["parameter_gradient_size"] = 0
    graph, _ = agree(document)
    assert graph.value("g1") in graph.writes[graph.task("B1")]
    assert graph.value("g1") in graph.reads[graph.task("U1")]


def test_the_cheapest_variant_is_that_of_least_time_in_all():
    """Not the one of the quickest backward: the forward that saves for it takes time, too."""
    ways = [{"saving_forward_time": 10, "backward_time": 1}, {"saving_forward_time": 3, "backward_time": 4}]
    stage = {"forward_time": 2, "backward_time": 1, "output_size": 1, "saved_size": 1, "variants": ways}
    chain = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "stages": [stage]}
    graph, _ = agree(chain)
    assert [graph.tasks[task] for task in np.flatnonzero(graph.cheapest)] == ["Fe1.2", "loss", "B1.2"]


@QUICK
@given(joins())
def test_joins_lower_like_the_oracle(document):
    graph, _ = agree(document)
    groups = [name.rstrip("0123456789.") for name in graph.tasks]
    assert list(dict.fromkeys(groups)) == ["F", "Fe", "loss", "B"]
    assert sorted(groups, key=["F", "Fe", "loss", "B"].index) == groups
    for names in (graph.tasks, graph.values):
        assert [names.find(name) for name in names] == list(range(len(names)))


@QUICK
@given(adjoints())
def test_adjoints_lower_like_the_oracle(document):
    agree(document)


@QUICK
@given(dags())
def test_task_graphs_lower_like_the_oracle(document):
    graph, _ = agree(document)
    assert list(graph.tasks) == [task["id"] for task in document["tasks"]]
    phases = [task.get("phase", "") for task in document["tasks"]]
    assert (graph.phase is None and not any(phases)) or list(graph.phase) == phases


@QUICK
@given(trees())
def test_trees_lower_like_the_oracle(document):
    agree(document)


@QUICK
@given(pipelines())
def test_pipelines_lower_like_the_oracle(document):
    graph, _ = agree(document)
    for names in (graph.tasks, graph.values):
        assert [names.find(name) for name in names] == list(range(len(names)))


def test_two_layers_of_a_pipeline():
    """Check the table of docs/reference/pipelines.md: reads and writes of each task, and the split of a saved size."""
    whole = {"forward_time": 1, "backward_time": 2, "output_size": 3, "saved_size": 5}
    halves = whole | {"weight_time": 4, "weight_saved_size": 2, "parameter_size": 6, "optimizer_size": 7}
    document = {"schema": "remat.instance/3", "kind": "pipeline", "micro_batches": 1, "layers": [halves, whole]}
    document["cluster"] = {"devices": [{"name": "d", "count": 2}]}
    graph, _ = agree(document)
    tasks = {
        name: (
            {graph.values[value] for value in graph.reads[task]},
            {graph.values[value] for value in graph.writes[task]},
        )
        for task, name in enumerate(graph.tasks)
    }
    assert tasks == {
        "Fe1.0": ({"w1"}, {"x1.0", "s1.0", "v1.0"}),
        "Fe2.0": ({"x1.0"}, {"x2.0", "s2.0"}),
        "B1.0": ({"s1.0", "v1.0", "y1.0", "x1.0", "w1"}, {"e1.0"}),
        "B2.0": ({"s2.0", "x1.0", "x2.0"}, {"y1.0"}),
        "W1.0": ({"v1.0", "e1.0", "g1"}, set()),
    }
    sizes = {name: int(size) for name, size in zip(graph.values, graph.size, strict=True)}
    assert [sizes[name] for name in ("s1.0", "v1.0", "e1.0", "s2.0", "y1.0", "w1", "g1", "o1")] == [
        *(3, 2, 0, 5, 3),
        *(6, 6, 7),
    ]
    document["layers"][0]["weight_saved_size"] = 9
    graph, _ = agree(document)
    sizes = {name: int(size) for name, size in zip(graph.values, graph.size, strict=True)}
    assert [sizes[name] for name in ("s1.0", "v1.0", "e1.0")] == [0, 5, 4]


@settings(max_examples=25, deadline=None)
@given(chains())
def test_integers_stay_integers(document):
    stages = document["stages"] + [variant for stage in document["stages"] for variant in stage.get("variants", ())]
    for stage in document["stages"]:
        if stage.get("variants"):  # the times that every variant replaces are nowhere in the graph
            stage["backward_time"] = int(stage["backward_time"])
            stage.pop("saving_forward_time", None)
    times = [value for stage in stages for key, value in stage.items() if key.endswith("_time")]
    exact = all(isinstance(time, int) for time in [*times, document.get("loss", {}).get("time", 0)])
    graph = lower(load(document))
    assert graph.exact_times == exact
    assert all(isinstance(time, int) == exact for time in graph.time.tolist())


ADJOINT = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 3}


def test_the_three_steps_of_the_design():
    """The table of the design: two stages, and the last step's backward is the loss."""
    graph, _ = agree(ADJOINT | {"forward_time": 1, "backward_time": 2, "state_size": 5})
    assert list(graph.tasks) == ["F1", "F2", "loss", "B1", "B2"]
    assert list(graph.values) == ["x0", "x1", "x2", "y0", "y1", "y2"]
    assert graph.time.tolist() == [1, 1, 2, 2, 2]
    assert [graph.values[value] for value in graph.reads[graph.task("B2")]] == ["y2", "x1"]
    assert [graph.values[value] for value in graph.reads[graph.task("loss")]] == ["x2"]
    assert graph.in_place.all()


def test_one_step_is_only_the_loss():
    graph, _ = agree(ADJOINT | {"steps": 1, "forward_time": 1, "backward_time": 4, "state_size": 2})
    assert list(graph.tasks) == ["loss"]
    assert list(graph.values) == ["x0", "y0"]
    assert graph.time.tolist() == [4]


def test_defaults_of_an_adjoint():
    graph = lower(load(ADJOINT))
    assert graph.time.tolist() == [1] * 5
    assert graph.size.tolist() == [1] * 6


def test_adjoint_storage_builds_the_machine():
    document = ADJOINT | {
        "state_size": 4,
        "adjoint_size": 3,
        "tape_size": 7,
        "static_memory": 2,
        "storage": [
            {"name": "ram", "slots": 2},
            {"name": "disk", "capacity": 100, "write_time": 5, "read_time": 6, "bandwidth": 2, "channel": "io"},
        ],
        "initial_state": "disk",
    }
    instance = load(document)
    machine = machine_of(instance)
    # One state, one adjoint, one tape, and the static bytes of the first memory.
    assert [(memory.name, memory.capacity) for memory in machine.memories] == [
        ("working", 4 + 3 + 7 + 2),
        ("ram", 8),
        ("disk", 100),
    ]
    assert machine.resources == ("processor", "io")
    assert [machine.resource_of_link[i] for i in range(4)] == [0, 0, 1, 1]
    assert [link.latency for link in machine.links] == [0, 0, 5, 6]
    graph = lower(instance)
    assert [(graph.values[place.value], place.memory) for place in graph.inputs] == [("x0", None), ("x0", "disk")]


@pytest.mark.parametrize("orientation", ["in", "out"])
def test_a_tree_of_three(orientation):
    document = {"schema": "remat.instance/1", "kind": "tree", "parent": [2, 2, -1], "output_size": [3, 4, 5]}
    graph, _ = agree(document | {"orientation": orientation})
    root = graph.task("T2")
    ends = (graph.reads, graph.writes) if orientation == "in" else (graph.writes, graph.reads)
    assert [sorted(ragged[root].tolist()) for ragged in ends] == [[0, 1], [2]]
    inputs, outputs = ([], [2]) if orientation == "in" else ([2], [])
    assert [place.value for place in graph.inputs] == inputs
    assert [place.value for place in graph.outputs] == outputs


def stage(name, **more):
    return {"name": name, "forward_time": 1, "backward_time": 1, "output_size": 1} | more


OWN_NAMES = {
    "chain": {
        "schema": "remat.instance/2",
        "input_size": 1,
        "stages": [stage("stem"), stage("block", repeat=2, parameter_size=1, variants=[{}, {}])],
    },
    "join": {"chains": [{"input_size": 1, "stages": [stage("stem")]}, {"input_size": 1, "stages": [stage("block")]}]},
    "pipeline": {
        "layers": [stage("stem", weight_time=1), stage("block", repeat=2)],
        "micro_batches": 2,
        "cluster": {"devices": [{"name": "gpu", "memory": "9B"}]},
    },
    "tree": {"schema": "remat.instance/1", "parent": [1, -1], "output_size": [1, 1], "names": ["stem", "block"]},
}


@pytest.mark.parametrize("kind", OWN_NAMES)
def test_tasks_know_the_stages_and_layers_that_they_belong_to(kind):
    document = {"schema": "remat.instance/3", "kind": kind} | OWN_NAMES[kind]
    graph = lower(load(document))
    assert len(graph.modules) == len(graph.tasks)
    for task, name in enumerate(graph.tasks):
        first = {"join": r"[A-Za-z]+1\.", "tree": "T0"}.get(kind, r"[A-Za-z]+1(\.|$)")
        expected = "" if name == "loss" else "stem" if re.match(first, name) else "block"
        assert graph.module(task) == expected
        assert graph.described(task) == (f"{name} of {expected}" if expected else name)
    for listed in ("stages", "layers", "chains"):
        for part in document.get(listed, ()):
            for named in part.get("stages", (part,)):
                del named["name"]
    assert kind == "tree" or lower(load(document)).modules is None
