"""Test kind `dag` on several devices: fields, refusals and schemas."""

import copy

import pytest

import remat
from remat.errors import InstanceError, OptionError
from remat.instance import load
from remat.instance.base import instance_document
from remat.instance.batch_size import scaled
from remat.instance.digest import digest
from remat.instance.lowering import lower
from remat.plugin.registry import algorithms

PLAIN = {
    "schema": "remat.instance/3",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "machine": {
        "memories": [{"name": "m"}, {"name": "n"}],
        "processors": [{"name": "p", "memory": "m", "type": "a"}, {"name": "q", "memory": "n", "type": "b"}],
        "links": [{"source": "m", "target": "n"}, {"source": "n", "target": "m"}],
    },
    "inputs": ["w"],
    "values": [{"id": "w", "size": 1}],
    "tasks": [{"id": "t", "time": 2, "reads": ["w"], "size": 1}],
}


def changed(path, value, document=PLAIN):
    """Return the document with one entry set; the path is a list of keys."""
    document = copy.deepcopy(document)
    owner = document
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return document


TASK = ["tasks", 0]
TOGETHER = {
    "id": "t",
    "time": 2,
    "parts": [{"reads": ["w"], "writes": ["x"]}, {"writes": ["x"], "memory": "n"}],
}
COLLECTIVE = changed(["tasks"], [TOGETHER], changed(["values"], [{"id": "w", "size": 1}, {"id": "x", "size": 3}]))
FIELDS = {
    "time by type": changed([*TASK, "time"], {"a": 1, "b": 3}),
    "tied": changed([*TASK, "on"], ["q"]),
    "placed": changed(["inputs"], [{"value": "w", "memory": "any"}]),
    "static": changed(["machine", "memories", 1, "static"], 5),
    "collective": COLLECTIVE,
}


@pytest.mark.parametrize("name", FIELDS)
def test_needs_the_schema_and_is_written_in_it(name):
    assert load(FIELDS[name]).least_schema == "remat.instance/3"
    untyped = copy.deepcopy(FIELDS[name])
    for processor in untyped["machine"]["processors"]:
        del processor["type"]
    if name != "time by type":  # without types no processor can run it
        assert load(untyped).least_schema == "remat.instance/3"
    with pytest.raises(InstanceError, match=r"needs the schema 'remat.instance/3'"):
        load(FIELDS[name] | {"schema": "remat.instance/2"})
    assert digest(load(FIELDS[name])) != digest(load(PLAIN))
    again = load(instance_document(load(FIELDS[name])))
    assert digest(again) == digest(load(FIELDS[name]))


def test_the_order_of_processors_does_not_matter():
    one, other = (changed([*TASK, "on"], on) for on in (["p", "q"], ["q", "p"]))
    assert digest(load(one)) == digest(load(other))


ANY = {"value": "w", "memory": "any"}


@pytest.mark.parametrize(
    ("path", "value", "at", "what"),
    [
        ([*TASK, "time"], {}, ".tasks[0].time", "without any type"),
        ([*TASK, "time"], {"a": -1}, ".tasks[0].time.a", "out of range"),
        ([*TASK, "time"], {"c": 1}, ".tasks[0].time", "no processor of the machine"),
        ([*TASK, "on"], [], ".tasks[0].on", "empty"),
        ([*TASK, "on"], ["r"], ".tasks[0].on[0]", "unknown processor 'r'"),
        ([*TASK, "on"], ["p", "p"], ".tasks[0].on", "twice"),
        (["tasks"], [{"id": "t", "time": {"a": 1}, "on": ["q"], "size": 1}], ".tasks[0].time", "it is tied to"),
        (["tasks"], [{"id": "t", "time": {"a": 1}, "parallel": {"max": 2}, "size": 1}], ".parallel", "one processor"),
        (["inputs"], [ANY | {"copies": 0}], ".inputs[0].copies", "out of range"),
        (["inputs"], [{"value": "w", "memory": "m", "copies": 2}], ".inputs[0]", "has copies"),
        (["inputs"], [ANY, "w"], ".inputs", "twice"),
        (["outputs"], [{"value": "t", "memory": "any"}], ".outputs[0].memory", "may end where it began"),
        (["machine", "memories", 0, "static"], -1, ".memories[0].static", "size"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_path(path, value, at, what):
    with pytest.raises(InstanceError) as caught:
        load(changed(path, value))
    assert at in str(caught.value)
    assert what in str(caught.value)


def test_a_memory_called_any():
    document = changed(["machine", "memories", 1, "name"], "any")
    document["machine"]["processors"][1]["memory"] = "any"
    document["machine"]["links"] = []
    document["machine"]["processors"] = document["machine"]["processors"][:1]
    del document["machine"]["processors"][0]["type"]
    document = document | {"inputs": ["w", ANY], "schema": "remat.instance/1"}
    assert load(document).least_schema == "remat.instance/1"
    assert not lower(load(document)).placeable
    with pytest.raises(InstanceError, match="only if no memory has this name"):
        load(document | {"inputs": [ANY | {"copies": 2}], "schema": "remat.instance/3"})


def test_least_times_are_those_of_the_machine():
    document = changed([*TASK, "time"], {"a": 5, "b": 3, "c": 1})
    assert remat.show(document).no_recompute_time == 3
    assert remat.show(document | {"tasks": [document["tasks"][0] | {"on": ["p"]}]}).no_recompute_time == 5
    alone = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m", "type": "c"}]}
    facts = remat.show(document, machine=alone)
    assert (facts.time_bound, facts.by_type) == (1, 0)


def test_alike_processors_leave_a_plain_instance():
    document = changed([*TASK, "time"], {"a": 5, "b": 5})
    document["tasks"][0]["on"] = ["q", "p"]
    graph = lower(load(document))
    assert graph.times is None
    assert not graph.tied
    assert remat.solve(document, algorithm="dag-list-memory").makespan == 5


STRANGERS = sorted(one.name for one in algorithms("dag", available=True) if not one.devices)
PLACING = ["auto", "tarnawski-latency"]


@pytest.mark.parametrize("algorithm", PLACING)
@pytest.mark.parametrize("name", [name for name in FIELDS if name != "collective"])
def test_algorithms_that_know_it_place_it(name, algorithm):
    result = remat.solve(FIELDS[name], algorithm=algorithm)
    assert result.makespan == remat.verify(FIELDS[name], result.to_dict()).makespan


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [(name, algorithm) for name in FIELDS for algorithm in STRANGERS] + [("collective", name) for name in PLACING],
)
def test_algorithms_that_know_none_of_it_refuse_in_a_line(name, algorithm):
    with pytest.raises(OptionError) as caught:
        remat.solve(FIELDS[name], algorithm=algorithm)
    assert "supports no" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_given_order_runs_on_the_first_processor():
    document = changed([*TASK, "time"], {"a": 5, "b": 3})
    assert remat.schedule_of(document, ["t"]).makespan == 5
    with pytest.raises(OptionError, match="not a processor that this task is tied to"):
        remat.schedule_of(FIELDS["tied"], ["t"])
    with pytest.raises(OptionError, match="cannot run this task"):
        remat.schedule_of(changed([*TASK, "time"], {"b": 3}), ["t"])
    assert remat.schedule_of(FIELDS["static"], ["t"]).peak_memory == {"m": 2, "n": 5}


def test_at_another_batch_every_time_grows_and_what_is_placed_does_not():
    document = changed([*TASK, "time"], {"a": 5, "b": 3}, FIELDS["placed"])
    larger = instance_document(scaled(load(document), 2))
    assert larger["tasks"][0]["time"] == {"a": 10, "b": 6}
    assert (larger["values"][0]["size"], larger["tasks"][0]["size"]) == (1, 2)
    assert larger["inputs"] == [ANY]


@pytest.mark.parametrize(
    ("change", "at", "what"),
    [
        ({"parts": []}, ".tasks[0].parts", "empty"),
        ({"parts": [{}, {}, {}]}, ".tasks[0]", "3 parts need as many memories, and the machine has 2"),
        ({"parts": [{"memory": "n"}, {"memory": "n"}]}, ".tasks[0].parts", "two parts are in one memory"),
        ({"parts": [{"memory": "o"}]}, ".tasks[0].parts", "'o'"),
        ({"parts": [{"reads": ["y"]}]}, ".tasks[0].parts[0].reads[0]", "'y' is not a value"),
        ({"parts": [{"writes": ["x", "x"]}]}, ".tasks[0].parts[0].writes", "listed twice"),
        ({"parts": [{"tag": 1}]}, ".tasks[0].parts[0].tag", "unknown key"),
        ({"reads": ["w"]}, ".tasks[0]", "so the task must not"),
        ({"size": 1}, ".tasks[0]", "so the task must not"),
        ({"in_place": True}, ".tasks[0].in_place", "not in place or parallel"),
        ({"parallel": {"max": 2}}, ".tasks[0].parallel", "not in place or parallel"),
        ({"time": {"a": 1, "b": 1}}, ".tasks[0].time", "one time"),
        ({"on": ["p"]}, ".tasks[0].on", "2 parts, and it is tied to 1 processors"),
        ({"required": False, "once": True}, ".tasks[0].once", "is required"),
    ],
)
def test_what_is_no_collective(change, at, what):
    with pytest.raises(InstanceError) as caught:
        load(changed([*TASK], TOGETHER | change, COLLECTIVE))
    assert at in str(caught.value)
    assert what in str(caught.value)


def test_only_collectives_are_busy():
    with pytest.raises(InstanceError, match=r"tasks\[0\].busy: only a collective"):
        load(changed([*TASK, "busy"], True))


def test_a_ring_over_three_devices():
    """An all-reduce overlaps with a task: it occupies the ring's three links, and processors only if busy."""
    names = ["d0", "d1", "d2"]
    document = {
        "schema": "remat.instance/3",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "machine": {
            "memories": [{"name": name} for name in names],
            "processors": [{"name": f"p{name}", "memory": name} for name in names],
            "links": [
                {"source": one, "target": other, "latency": 1} for one in names for other in names if one != other
            ],
        },
        "values": [{"id": "sum", "size": 4}],
        "tasks": [
            *({"id": f"g{k}", "time": 2, "size": 4} for k in range(3)),
            {
                "id": "reduce",
                "time": 6,
                "workspace": 2,
                "parts": [{"reads": [f"g{k}"], "writes": ["sum"]} for k in range(3)],
            },
            {"id": "other", "time": 3, "size": 1},
        ],
    }
    steps = [
        *({"run": f"g{k}", "on": [f"pd{k}"], "start": 0} for k in range(3)),
        {"run": "reduce", "on": ["pd0", "pd1", "pd2"], "start": 2},
        {"run": "other", "on": ["pd0"], "start": 2},
    ]
    report = remat.verify(document, {"schema": "remat.schedule/2", "steps": steps})
    assert report.ok
    assert report.makespan == 8
    assert {name: peak.size for name, peak in report.peaks.items()} == {"d0": 11, "d1": 10, "d2": 10}
    assert {name: time for name, time in report.busy.items() if time} == {
        "pd0": 5,
        "pd1": 2,
        "pd2": 2,
        "d0->d1": 6,
        "d1->d2": 6,
        "d2->d0": 6,
    }
    document["tasks"][3]["busy"] = True
    broken = remat.verify(document, {"schema": "remat.schedule/2", "steps": steps})
    assert {violation.rule for violation in broken.violations} == {"resource-busy"}
    assert remat.show(document).collectives == 1
    assert remat.show(document).time_bound == 8
