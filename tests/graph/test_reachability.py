"""Proofs that a required transfer has no route: against a plain fixpoint, and against schedules."""

import dataclasses

import pytest

import remat
from remat.graph.reachability import unreachable
from remat.solving.problem_setup import make_problem
from tests.algorithms import drawing
from tests.oracles import lowering

LINE = 300
"""Characters of a message, at most."""


def problem(document):
    return make_problem(remat.load(document))


def graph(machine, **rest):
    """Two tasks in a row: t1 reads the input, t2 what t1 makes."""
    tasks = [
        {"id": "t1", "time": 1, "reads": ["i"], "writes": ["v"]},
        {"id": "t2", "time": 1, "reads": ["v"], "writes": ["w"]},
    ]
    values = [{"id": name, "size": 1} for name in "ivw"]
    document = {"schema": "remat.instance/3", "kind": "dag", "tasks": tasks, "values": values, "machine": machine}
    return document | {"inputs": ["i"], "outputs": ["w"]} | rest


def machine(*links, processors=("device",)):
    return {
        "memories": [{"name": "device"}, {"name": "host"}, {"name": "disk"}],
        "processors": [{"name": f"p{k}", "memory": memory} for k, memory in enumerate(processors)],
        "links": [dict(zip(("source", "target"), link.split(">"), strict=True)) for link in links],
    }


IN_HOST = [{"value": "i", "memory": "host"}]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (graph(machine()), None),
        (graph(machine("device>host"), outputs=[{"value": "w", "memory": "host"}]), None),
        (
            graph(machine("host>device"), outputs=[{"value": "w", "memory": "host"}]),
            "output 'w' must end in 'host', but no link leads there from 'device'",
        ),
        (graph(machine("host>disk", "disk>device"), inputs=IN_HOST), None),
        (
            graph(machine("device>host", "disk>device"), inputs=IN_HOST),
            "task 't1' reads 'i' in 'device', but no link leads there from 'host'",
        ),
        # A processor in the host makes v there, and w; a link brings it to where it must end.
        (graph(machine("host>device", processors=("device", "host")), inputs=IN_HOST), None),
        (
            graph(machine(processors=("device", "host")), inputs=IN_HOST),
            "output 'w' must end in 'device', but no link leads there from 'host'",
        ),
        (
            graph(
                machine("device>host"),
                inputs=["i", {"value": "v", "memory": "disk"}],
                outputs=[{"value": "v", "memory": "device"}, {"value": "v", "memory": "disk"}],
            ),
            None,
        ),
    ],
)
def test_unreachable_outputs_are_named(document, message):
    assert problem(document).unreachable == message


def test_reads_that_never_meet():
    document = graph(machine(processors=("device", "host")), inputs=["i", {"value": "j", "memory": "host"}])
    document["values"].append({"id": "j", "size": 1})
    document["tasks"][0]["reads"].append("j")
    expected = "task 't1' reads 'i' in 'device', 'j' in 'host', and no links bring these together in 'device' or 'host'"
    assert problem(document).unreachable == expected


def test_a_tied_task_runs_only_where_its_processor_is():
    document = graph(machine("device>host", processors=("device", "host")))
    document["tasks"][1]["on"] = ["p1"]
    assert problem(document).unreachable == "output 'w' must end in 'device', but no link leads there from 'host'"
    document["tasks"][1]["on"] = ["p1", "p0"]
    assert problem(document).unreachable is None


def test_an_optimizer_memory_that_no_link_reaches():
    """The update reads a gradient on the device and a state in the host's memory."""
    document = {
        "schema": "remat.instance/2",
        "kind": "chain",
        "input_size": 1,
        "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 1, "optimizer_size": 1}],
        "optimizer_memory": "host",
        "machine": machine(processors=("device", "host")),
    }
    assert "no links bring these together" in problem(document).unreachable
    document["machine"] = machine("host>device", "device>host")
    assert problem(document).unreachable is None


def test_long_names_are_elided():
    name = "x" * 900
    document = graph(machine(), outputs=[{"value": name, "memory": "host"}])
    document["values"].append({"id": name, "size": 1})
    document["tasks"][1]["writes"].append(name)
    said = problem(document).unreachable
    assert len(said) <= LINE
    assert "xxx...xxx" in said


def test_capacities_change_nothing():
    found = problem(graph(machine(), inputs=IN_HOST))
    assert found.with_capacities({"device": 0}).unreachable == found.unreachable


def naive(document):
    """Return whether an output or needed task is unreachable, by a fixpoint over all tasks and links."""
    place = lowering.machine(document)
    lowered = lowering.lower(document, place)
    there = {(value, memory or place.first) for value, memory in lowered.inputs}
    there |= {(value, memory) for value in lowered.placeable for memory in place.memories}
    ran, before = set(), -1
    while before != len(there) + len(ran):
        before = len(there) + len(ran)
        there |= {(value, link.target) for value, memory in there for link in place.links if link.source == memory}
        for name, task in lowered.tasks.items():
            for processor, memory in place.processors.items():
                able = task.times is None or place.types.get(processor, "") in task.times
                if task.on is not None and processor not in task.on:
                    able = False
                if able and all((value, memory) in there for value in task.reads):
                    ran.add(name)
                    there |= {(value, memory) for value in task.writes}
    missing = [value for value, memory in lowered.outputs if (value, memory or place.first) not in there]
    return bool(missing), set(lowered.tasks) - ran


def drawn(seed):
    """Draw graphs and chains that the oracle's lowering knows, with many links left out."""
    document = drawing.document(f"reach/{seed}", ("dag", "chain"))
    links = document.get("machine", {}).get("links", [])
    draw = drawing.Draw(f"reach/{seed}/links")
    if links and draw.chance(2):
        document["machine"]["links"] = draw.some(links, len(links))
    try:
        return document, problem(document)
    except remat.InstanceError:
        return document, None


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 4000), marks=pytest.mark.slow)])
def test_like_the_plain_fixpoint(seeds):
    told = 0
    for seed in seeds:
        document, own = drawn(seed)
        if own is None:
            continue
        missing, idle = naive(document)
        needed = {own.graph.tasks[task] for task in range(len(own.graph.tasks)) if own.needed.forced[task]}
        assert (own.unreachable is not None) == (missing or bool(idle & needed)), seed
        if own.unreachable is not None:
            told += 1
            assert len(own.unreachable) <= LINE
            assert "\n" not in own.unreachable
    assert told


def test_the_shortcut_says_what_the_fixpoint_says(monkeypatch):
    """On fully connected machines, the shortcut skips the fixpoint, which finds no fault either."""
    from remat.graph import reachability

    monkeypatch.setattr(reachability, "_all_connected", lambda *_: False)
    for seed in range(60):
        own = drawn(seed)[1]
        if own is not None and len(own.machine.memories) > 1:
            assert unreachable(own.graph, own.machine, own.needed) == own.unreachable


def test_no_schedule_is_ever_found_where_one_is_excluded():
    found = 0
    for seed in range(150):
        document, own = drawn(seed)
        if own is None or own.unreachable is None:
            continue
        for name in ("dag-offload-best", "keep-all", "offload-greedy"):
            try:
                result = remat.solve(document, algorithm=name, options={"iterations": 5} if "best" in name else None)
            except remat.OptionError:
                continue
            assert result.columns is None
            found += 1
    assert found


def test_another_machine_is_asked_anew():
    own = problem(graph(machine(), inputs=IN_HOST))
    assert own.unreachable is not None
    other = problem(graph(machine("host>device"), inputs=IN_HOST))
    assert dataclasses.replace(own, machine=other.machine).unreachable is None
    assert own.on(other.machine).unreachable is None
