"""Energies of tasks and links: read, refused, written, scaled, lowered and built."""

import copy
import json
import math

import numpy as np
import pytest

import remat
from remat.errors import InstanceError, OptionError
from remat.instance import digest, instance_document, load
from remat.instance.batch_size import scaled
from remat.instance.lowering import lower, machine_of

TYPES = [{"name": "p", "memory": "m", "type": "a"}, {"name": "q", "memory": "m", "type": "b"}]
DOCUMENT = {
    "schema": "remat.instance/3",
    "kind": "dag",
    "machine": {
        "memories": [{"name": "m"}, {"name": "n"}],
        "processors": TYPES,
        "links": [{"source": "m", "target": "n", "energy": 2}, {"source": "n", "target": "m", "energy": 0.5}],
    },
    "tasks": [
        {"id": "t", "time": 2, "energy": {"a": 3, "b": 4}, "size": 1},
        {"id": "u", "time": 2, "energy": 5, "reads": ["t"], "size": 1},
        {"id": "v", "time": 2, "reads": ["t"], "size": 1},
    ],
}


def changed(index, **fields):
    """Return the document with other fields of one task."""
    document = copy.deepcopy(DOCUMENT)
    document["tasks"][index] |= fields
    return document


def as_models(document):
    """Return the instance with its tasks as models: one of them says something that no column has."""
    return load(document | {"tasks": [*document["tasks"], {"id": "w", "time": 1, "size": 1, "on": ["p"]}]})


@pytest.mark.parametrize("energy", [{"a": 3, "b": 4}, 5, 0.25, 0])
def test_survives_a_round_trip(energy, tmp_path):
    instance = load(changed(0, energy=energy))
    instance.save(tmp_path / "copy.json")
    again = load(tmp_path / "copy.json")
    assert again.tasks[0].energy == energy
    assert digest(again) == digest(instance)
    assert instance_document(again) == instance_document(instance)
    assert instance_document(instance)["machine"]["links"] == DOCUMENT["machine"]["links"]


def test_the_digest_tells_energies_apart():
    found = {digest(load(changed(1, **fields))) for fields in ({}, {"energy": 6}, {"energy": 0})}
    assert len(found) == 3
    assert digest(load(changed(1, energy=5.0))) == digest(load(DOCUMENT))
    assert digest(load(changed(0, energy={"b": 4.0, "a": 3}))) == digest(load(DOCUMENT))
    link = copy.deepcopy(DOCUMENT)
    link["machine"]["links"][0]["energy"] = 7
    assert digest(load(link)) != digest(load(DOCUMENT))


def test_nothing_changes_without_energies():
    """An energy of 0 is no energy: the digest, the schema and the document are those without the field."""
    plain = {"schema": "remat.instance/1", "kind": "dag", "tasks": [{"id": "t", "time": 2, "size": 1}]}
    zero = plain | {"schema": "remat.instance/3", "tasks": [plain["tasks"][0] | {"energy": 0}]}
    assert digest(load(zero)) == digest(load(plain))
    assert instance_document(load(zero)) == instance_document(load(plain)) == plain
    assert lower(load(plain)).energy is None
    assert remat.solve(plain).energy is None


@pytest.mark.parametrize(
    ("energy", "message"),
    [
        (-1, "-1 is out of range"),
        (-0.5, "expected a finite number >= 0, not -0.5"),
        (math.nan, "expected a finite number >= 0, not nan"),
        (math.inf, "expected a finite number >= 0"),
        (1e30, "an energy lies between 0 and 2\\^62"),
        (2**62 + 1, "is out of range"),
        ("5J", "expected a number >= 0, not '5J'"),
        (True, "expected a number >= 0, not true"),
        ({}, "an object without any type of device; write an energy"),
        ({"a": -1, "b": 1}, "-1 is out of range"),
        ({"a": 1}, "processor 'q' is of type 'b', which has no energy"),
    ],
)
def test_refuses_other_energies_in_one_line(energy, message):
    with pytest.raises(InstanceError, match=message) as raised:
        load(changed(1, energy=energy))
    assert "\n" not in str(raised.value)
    assert "tasks[1].energy" in str(raised.value)


@pytest.mark.parametrize("energy", [-1, math.nan, 1e30, "x"])
def test_refuses_other_energies_of_links(energy):
    document = copy.deepcopy(DOCUMENT)
    document["machine"]["links"][1]["energy"] = energy
    with pytest.raises(InstanceError, match=r"machine.links\[1\].energy"):
        load(document)


def test_energies_by_type_need_types_and_single_runs():
    with pytest.raises(InstanceError, match="a parallel task has one energy"):
        load(changed(0, parallel={"max": 2}))
    with pytest.raises(InstanceError, match="has no type, and energies are by type"):
        load(DOCUMENT | {"machine": {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m"}]}})
    # A type that cannot run the task needs no energy.
    assert load(changed(0, time={"a": 1}, energy={"a": 3})).tasks[0].energy_on("a") == 3


@pytest.mark.parametrize("schema", ["remat.instance/1", "remat.instance/2"])
def test_older_schemas_have_no_energy(schema):
    plain = {"schema": schema, "kind": "dag", "tasks": [{"id": "t", "time": 1, "energy": 3, "size": 1}]}
    with pytest.raises(InstanceError, match=r"tasks\[0\].energy: this field needs the schema 'remat.instance/3'"):
        load(plain)
    link = {"source": "m", "target": "m", "energy": 1}
    machine = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m"}], "links": [link]}
    plain["tasks"][0].pop("energy")
    with pytest.raises(InstanceError, match=r"needs the schema 'remat\.instance/3'"):
        load(plain | {"machine": machine})


def test_columns_and_models_agree():
    text = json.dumps(DOCUMENT)
    by_columns, by_models = load(json.loads(text)), as_models(DOCUMENT)
    assert [task.energy for task in by_columns.tasks] == [{"a": 3, "b": 4}, 5, 0]
    for own, other in zip(by_columns.tasks, by_models.tasks, strict=False):
        assert own == other
    graph, other = lower(by_columns).energy, lower(by_models).energy
    assert graph.types == other.types == ("a", "b")
    assert graph.of_type.tolist() == [[3, 5, 0], [4, 5, 0]]
    assert other.of_type[:, :3].tolist() == graph.of_type.tolist()


def test_equal_energies_by_type_are_one_energy():
    energy = lower(load(changed(0, energy={"a": 3, "b": 3, "c": 9}))).energy
    assert energy.types == ()
    assert energy.of_type.tolist() == [[3, 5, 0]]


def test_a_machine_of_other_types_is_refused():
    other = DOCUMENT["machine"] | {"processors": [{"name": "p", "memory": "m", "type": "z"}]}
    with pytest.raises(OptionError, match="task 't' has no energy on 'p', of type 'z'"):
        remat.solve(DOCUMENT, machine=other)


def test_energies_of_tasks_scale_with_the_batch():
    tripled = scaled(load(DOCUMENT), 3)
    assert [task.energy for task in tripled.tasks] == [{"a": 9, "b": 12}, 15, 0]
    assert instance_document(tripled)["machine"]["links"] == DOCUMENT["machine"]["links"]


def test_samples_of_a_stream_have_the_energies_of_the_graph():
    machine = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m"}]}
    stream = {
        "schema": "remat.instance/3",
        "kind": "dag",
        "machine": machine,
        "stream": 3,
        "tasks": DOCUMENT["tasks"][1:],
    }
    stream["tasks"] = [{"id": "u", "time": 2, "energy": 5, "size": 1}, {"id": "v", "time": 1, "energy": 2, "size": 1}]
    assert lower(load(stream)).energy.of_type.tolist() == [[5, 5, 5, 2, 2, 2]]


def test_the_order_of_parts_does_not_matter():
    turned = copy.deepcopy(DOCUMENT)
    turned["machine"]["links"].reverse()
    turned["machine"]["memories"].reverse()
    first, second = machine_of(load(DOCUMENT)), machine_of(load(turned))
    assert [memory.name for memory in first.memories] == [memory.name for memory in second.memories]
    assert [link.energy for link in first.links] == [link.energy for link in second.links]


def test_builders_take_energies():
    edges = [(0, 1), (0, 2)]
    graph = remat.dag(edges, time=1, size=[1, 1, 1], energy=[3, 0, 2])
    assert [task.energy for task in graph.tasks] == [3, 0, 2]
    assert instance_document(graph)["schema"] == "remat.instance/3"
    assert load(instance_document(graph)) == graph
    assert remat.dag(edges, time=1, size=1, energy=0.5).tasks[2].energy == 0.5
    assert remat.dag(edges, time=1, size=1, energy=np.array([0.5, 1, 2])).tasks[1].energy == 1
    for wrong, message in (([3, -1, 2], r"energy\[1\]"), (1e30, "energy"), ([1, math.nan, 2], r"energy\[1\]")):
        with pytest.raises(InstanceError, match=message):
            remat.dag(edges, time=1, size=1, energy=wrong)
    link = {"bandwidth": 3, "energy": 2}
    gpu = remat.machine(memories={"d": 9, "h": None}, processors={"g": "d"}, links={("d", "h"): link, ("h", "d"): link})
    assert [
        link.energy
        for link in machine_of(load(DOCUMENT), remat.load(changed(0, energy=1) | {"machine": gpu}).machine).links
    ] == [2, 2]
    with pytest.raises(InstanceError, match="energy"):
        remat.machine(memories={"d": 9, "h": None}, processors={"g": "d"}, links={("d", "h"): {"energy": -2}})
