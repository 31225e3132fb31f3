"""Instances: every document of the format loads; everything else is refused, with its place in the document."""

import gzip
import io
import json
import re

import jsonschema
import pytest
from hypothesis import given, settings

import remat
from remat.errors import InstanceError
from remat.instance import digest, instance_document, json_schema, load, load_machine
from remat.units import Units
from tests import places
from tests.instance.documents import ANNOTATIONS, annotated, documents, machines

HEAD = {"schema": "remat.instance/1"}
CHAIN = HEAD | {
    "kind": "chain",
    "input_size": 1,
    "stages": [
        {"forward_time": 1, "backward_time": 2, "output_size": 3},
        {"forward_time": 1, "backward_time": 2, "output_size": 4},
    ],
}
ADJOINT = HEAD | {"kind": "adjoint", "steps": 5}
DAG = HEAD | {
    "kind": "dag",
    "values": [{"id": "a", "size": 1}, {"id": "b", "size": 2}],
    "tasks": [{"id": "s", "time": 1, "writes": ["a"]}, {"id": "t", "time": 1, "reads": ["a"], "writes": ["b"]}],
}
TREE = HEAD | {"kind": "tree", "parent": [2, 2, -1], "output_size": [1, 2, 3]}


def changed(document, path, value):
    """Return a deep copy in which the key at a dotted path has another value (or, `...`, is gone)."""
    copy = json.loads(json.dumps(document))
    node = copy
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in way:
        node = node[part]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return copy


# ------------------------------------------------------------------------------------- all that is wrong


def several_wrong(count):
    stage = {"forward_time": 1, "backward_time": 2, "output_size": "3"}
    stages = [dict(stage, output_size="much") for _ in range(count)] + [stage]
    return HEAD | {"kind": "chain", "input_size": 1, "stages": stages}


@pytest.mark.parametrize("count", [1, 2, 20, 21, 57])
def test_twenty_errors_are_named(count):
    with pytest.raises(InstanceError) as caught:
        load(several_wrong(count))
    error = caught.value
    assert error.path == "$.stages[0].output_size"
    assert str(error).endswith(f"(and {count - 1} more error{'s'[: count > 2]})" if count > 1 else "'8GiB'")
    named = [f"$.stages[{k}].output_size: 'much' is not a size" for k in range(1, min(count, 20))]
    assert [line.partition(";")[0] for line in error.more[:19]] == named
    assert error.more[19:] == ((f"and {count - 20} more error{'s'[: count > 21]}",) if count > 20 else ())
    assert getattr(error, "__notes__", []) == list(error.more)


def test_all_wrong_entries_of_an_array_are_named():
    sizes = [1, "x", 2, -3, *["x"] * 30]
    tree = HEAD | {"kind": "tree", "parent": [-1, *[0] * 33], "output_size": sizes}
    with pytest.raises(InstanceError) as caught:
        load(tree)
    assert str(caught.value).startswith("$.output_size[1]: 'x' is not a size")
    assert str(caught.value).endswith("(and 31 more errors)")
    assert caught.value.more[0] == "$.output_size[3]: -3 is negative; a size is an integer >= 0"
    assert len(caught.value.more) == 20
    assert caught.value.more[-1] == "and 12 more errors"
    with pytest.raises(InstanceError, match=r"\(and at least 9,999 more errors\)"):
        load(HEAD | {"kind": "tree", "parent": [-1], "output_size": ["x"] * 20_000})


@pytest.mark.parametrize("right", [0, 999, 1000, 2500])
@pytest.mark.parametrize("kind", ["stages", "steps", "reads"])
def test_errors_of_long_lists_are_named_and_not_all_kept(right, kind):
    stage = {"forward_time": 1, "backward_time": 2, "output_size": 3}
    wrong = {"forward_time": 1, "backward_time": 2, "output_sizes": -1}
    if kind == "stages":
        document, path = (
            HEAD | {"kind": "chain", "input_size": 1, "stages": [stage] * right + [wrong] * 30_000},
            "$.stages",
        )
    elif kind == "steps":
        document, path = ADJOINT | {"steps": [{}] * right + [{"tape_time": -1}] * 30_000}, "$.steps"
    else:
        document, path = changed(DAG, "tasks.1.reads", ["a"] * right + [1] * 30_000), "$.tasks[1].reads"
    with pytest.raises(InstanceError) as caught:
        load(document)
    assert caught.value.path.startswith(f"{path}[{right}]")
    assert f"{path}[{right + 9}]" in "".join(caught.value.more)
    assert len(caught.value.more) == 20
    assert re.fullmatch(r"and at least (9|10),\d\d\d more errors", caught.value.more[-1])


@pytest.mark.parametrize("where", ["schema", "kind", "name", "steps", "state_size"])
def test_what_is_wrong_is_shown_in_a_few_characters(where):
    deep = [[]]
    for _ in range(5000):
        deep = [deep]
    for wrong in (deep, ["x" * 1000] * 1000, {"x" * 10_000: 1}, "\x1b[31m" * 100_000):
        with pytest.raises(InstanceError) as caught:
            load(ADJOINT | {where: wrong})
        assert len(str(caught.value)) < 300


# ------------------------------------------------------------------------------------------------- valid


SCHEMA = jsonschema.Draft202012Validator(json_schema())


@settings(max_examples=60, deadline=None)
@given(documents)
def test_every_document_loads_and_fits_the_schema(document):
    load(document)
    SCHEMA.validate(document)


@settings(max_examples=60, deadline=None)
@given(documents)
def test_what_is_written_by_a_model_loads_again(document):
    instance = load(document)
    written = json.loads(instance.model_dump_json(by_alias=True, exclude_unset=True))
    again = load(written)
    assert again == instance
    assert digest(again) == digest(instance)


@settings(max_examples=30, deadline=None)
@given(machines())
def test_machines_are_written_and_read_back(document):
    built = load_machine(document, Units("unit", "unit")).build()
    again = load_machine(json.loads(json.dumps(built.to_document())), Units("unit", "unit")).build()
    assert again == built


@pytest.mark.parametrize("document", [CHAIN, ADJOINT, DAG, TREE], ids=lambda document: document["kind"])
def test_instances_load_from_paths_files_and_documents(document, tmp_path, monkeypatch):
    expected = load(document)
    assert load(expected) is expected
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(document))
    packed = tmp_path / "instance.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed.read_bytes())))
    assert load(path) == load(str(packed)) == load("-") == expected
    with path.open() as file:
        assert remat.load(file) == expected


def test_missing_fields_have_their_defaults():
    chain = load(CHAIN)
    assert chain.length == 2
    assert (chain.static_memory, chain.in_place, chain.input_gradient) == (0, False, True)
    assert chain.backward_reads == ("input", "output", "saved")
    assert chain.units.build() == Units("s", "B")
    adjoint = load(ADJOINT)
    assert (adjoint.forward_time, adjoint.backward_time, adjoint.state_size) == (1, 1, 1)
    assert (adjoint.length, adjoint.taped, adjoint.initial_state) == (5, False, "live")
    task = load(DAG).tasks[0]
    assert (task.required, task.recomputable, task.once, task.in_place) == (True, True, False, False)
    assert load(TREE).orientation == "in"


def test_the_schema_on_file_is_the_schema():
    on_file = json.loads((places.DOCS / "schema/remat.instance-3.json").read_text())
    assert on_file == json_schema(), "write it again: remat show --schema > docs/schema/remat.instance-3.json"


def test_the_second_schema_only_adds_to_the_first():
    folder = places.DOCS / "schema"
    first, second = (json.loads((folder / f"remat.instance-{number}.json").read_text()) for number in (1, 2))
    added = {
        f"{name}.{key}"
        for name, model in second["$defs"].items()
        for key in model["properties"].keys() - first["$defs"].get(name, model)["properties"].keys()
    }
    assert added == {
        *("ChainInstance.parameter_memory", "ChainInstance.optimizer_memory", "ChainInstance.master_copy"),
        *("Stage.parameter_size", "Stage.parameter_gradient_size", "Stage.optimizer_size", "Stage.update_time"),
        "ProcessorModel.speed",
    }
    for name, model in first["$defs"].items():
        assert model.get("required") == second["$defs"][name].get("required")
        for key, field in model["properties"].items():
            later = second["$defs"][name]["properties"][key]
            if key not in ("schema", "processors"):  # the latter's default has the new field, too
                assert later == field


@pytest.mark.parametrize("document", [CHAIN, ADJOINT, DAG, TREE], ids=lambda document: document["kind"])
@pytest.mark.parametrize("number", [1, 2])
def test_the_schema_requires_what_the_reader_does(document, number):
    folder = places.DOCS / "schema"
    schema = jsonschema.Draft202012Validator(json.loads((folder / f"remat.instance-{number}.json").read_text()))
    schema.validate(document)
    for key in ("schema", "kind"):
        without = changed(document, key, ...)
        assert not schema.is_valid(without)
        with pytest.raises(InstanceError, match="the key is missing"):
            load(without)
    made = type(load(document)).model_validate(changed(document, "schema", ...))
    assert made.schema_ == HEAD["schema"]


@pytest.mark.parametrize(
    "name", ["DagInstance", "Task", "Value", "Parallel", "UnitsModel", "MachineModel", "MemoryModel", "LinkModel"]
)
def test_fields_of_task_graphs_are_described(name):
    for key, field in json_schema()["$defs"][name]["properties"].items():
        assert key == "kind" or field["description"].endswith(".")


def test_variants_default_to_their_stage():
    stage = {"forward_time": 1, "saving_forward_time": 2, "backward_time": 3, "output_size": 4, "saved_size": 5}
    variants = [{}, {"saved_size": 0, "backward_time": 7, "name": "lean"}, {"saving_forward_time": 6}]
    loaded = load(changed(CHAIN, "stages.1", stage | {"variants": variants})).stages[1]
    found = [(way.saving_time, way.backward_time, way.saved_size, way.variants) for way in loaded.alternatives]
    assert found == [(2, 3, 5, ()), (2, 7, 0, ()), (6, 3, 5, ())]
    assert loaded.alternatives[1].output_size == 4


def test_variants_that_say_the_same_have_one_digest():
    plain = changed(CHAIN, "stages.1.variants", [{}, {"saved_size": 1}])
    spelt = changed(
        CHAIN,
        "stages.1.variants",
        [
            {"saved_size": 0, "backward_reads": ["saved", "output", "input"], "saving_forward_time": 1},
            {"saved_size": 1, "backward_time": 2, "saving_workspace": 0, "backward_workspace": 0},
        ],
    )
    assert digest(load(plain)) == digest(load(spelt))
    for other in ([{}], [{"saved_size": 1}, {}], [{}, {"saved_size": 2}]):
        assert digest(load(changed(CHAIN, "stages.1.variants", other))) != digest(load(plain))


def test_sizes_and_times_in_the_units_of_the_instance():
    document = changed(CHAIN, "units", {"time": "ms"})
    document["stages"][0] |= {"forward_time": "2us", "backward_time": "1.5s", "output_size": "8KiB"}
    stage = load(document).stages[0]
    assert (stage.forward_time, stage.backward_time, stage.output_size) == (0.002, 1500, 8192)
    assert type(stage.backward_time) is int
    # The units of one instance do not leak into the next.
    assert load(changed(CHAIN, "stages.0.forward_time", "2ms")).stages[0].forward_time == 0.002


def test_a_machine_in_units():
    machine = {
        "memories": [{"name": "d", "capacity": "8GB"}, {"name": "h"}],
        "processors": [{"name": "g", "memory": "d", "count": 2}],
        "links": [{"source": "d", "target": "h", "bandwidth": "12GB/s", "latency": "5us", "channel": "g1"}],
    }
    built = load_machine(machine, Units("ms", "B")).build()
    assert [memory.capacity for memory in built.memories] == [8 * 10**9, None]
    assert built.resources == ("g0", "g1")
    assert (built.links[0].bandwidth, built.links[0].latency) == (12 * 10**6, 0.005)
    assert built.resource_of_link == (1,)
    assert built.link_name(0) == "d->h"


def test_a_chain_of_a_million_nodes():
    n = 1_000_000
    tree = load(HEAD | {"kind": "tree", "parent": [*range(1, n), -1], "output_size": [1] * n})
    assert len(tree.parent) == n


# --------------------------------------------------------------------------------------------- not valid

BAD = [
    ([], "$", "an instance is a JSON object, not a list"),
    (changed(CHAIN, "schema", ...), "$.schema", "the key is missing"),
    (changed(CHAIN, "schema", "remat.instance/9"), "$.schema", "found 'remat.instance/9'"),
    (changed(CHAIN, "kind", ...), "$.kind", "the key is missing"),
    (changed(CHAIN, "kind", "graph"), "$.kind", "unknown kind 'graph'; it is one of chain, adjoint, dag, tree"),
    (changed(CHAIN, "kind", ["chain"]), "$.kind", "unknown kind"),
    (changed(CHAIN, "colour", "red"), "$.colour", "unknown key"),
    (changed(CHAIN, "name", 5), "$.name", "text"),
    (changed(CHAIN, "units", {"time": "min"}), "$.units.time", "'min' is not one of"),
    (changed(CHAIN, "units", {"speed": "s"}), "$.units.speed", "unknown key"),
    (changed(CHAIN, "units", "ms"), "$.units", ""),
    (changed(CHAIN, "static_memory", "8,5GB"), "$.static_memory", "'8,5GB' is not a size"),
    # chain
    (changed(CHAIN, "input_size", ...), "$.input_size", "the key is missing"),
    (changed(CHAIN, "stages", []), "$.stages", "the list is empty"),
    (changed(CHAIN, "stages", {}), "$.stages", "list"),
    (changed(CHAIN, "stages.1.forward_time", -1), "$.stages[1].forward_time", "out of range"),
    (changed(CHAIN, "stages.1.forward_time", -0.5), "$.stages[1].forward_time", "negative"),
    (changed(CHAIN, "stages.1.backward_time", float("nan")), "$.stages[1].backward_time", "not a finite time"),
    (changed(CHAIN, "stages.1.backward_time", float("inf")), "$.stages[1].backward_time", "not a finite time"),
    (changed(CHAIN, "stages.0.output_size", 2**63), "$.stages[0].output_size", "larger than the largest size"),
    (changed(CHAIN, "stages.0.output_size", 10**400), "$.stages[0].output_size", "more than 30 digits"),
    (changed(CHAIN, "stages.0.output_size", True), "$.stages[0].output_size", "true is not a size"),
    (changed(CHAIN, "stages.0.output_size", None), "$.stages[0].output_size", "null is not a size"),
    (changed(CHAIN, "stages.0.repeat", 10**12), "$.stages[0].repeat", "out of range"),
    (changed(CHAIN, "stages.0.repeat", 0), "$.stages[0].repeat", "out of range"),
    (changed(CHAIN, "stages.0.repeat", "3"), "$.stages[0].repeat", "whole number"),
    (changed(CHAIN, "stages.0.repeat", 10_000_000), "$.stages", "stages with repeats"),
    (
        changed(CHAIN, "stages.0.backward_reads", ["weights"]),
        "$.stages[0].backward_reads[0]",
        "'weights' is not one of",
    ),
    (changed(CHAIN, "stages.1.output_size", 2**61), "$", "more than the largest total"),
    (changed(CHAIN, "stages.0.variants", {}), "$.stages[0].variants", "list"),
    (changed(CHAIN, "stages.1.variants", [{}, {"speed": 1}]), "$.stages[1].variants[1].speed", "unknown key"),
    (changed(CHAIN, "stages.1.variants", [{"saved_size": -1}]), "$.stages[1].variants[0].saved_size", "negative"),
    (changed(CHAIN, "stages.1.variants", [{"saved_size": 2**61}] * 2), "$", "more than the largest total"),
    (changed(CHAIN, "stages.1.variants", [{"output_size": 2}]), "$.stages[1].variants[0].output_size", "unknown key"),
    (
        changed(CHAIN, "stages.1", CHAIN["stages"][1] | {"variants": [{}] * 1000, "repeat": 10**5}),
        "$.stages",
        "variants",
    ),
    (changed(CHAIN, "in_place", 1), "$.in_place", "expected true or false"),
    (changed(CHAIN, "loss", {"speed": 1}), "$.loss.speed", "unknown key"),
    # adjoint
    (changed(ADJOINT, "steps", 0), "$.steps", "out of range"),
    (changed(ADJOINT, "steps", 10**12), "$.steps", "out of range"),
    (changed(ADJOINT, "steps", []), "$.steps", "the list of steps is empty"),
    (changed(ADJOINT, "steps", True), "$.steps", "expected a number of steps or a list"),
    (changed(ADJOINT, "steps", [{}, {"state_size": -1}]), "$.steps[1].state_size", "negative"),
    (changed(ADJOINT, "steps", [{"tape_size": 1}, {}]), "$.steps[1].tape_size", "this one does not"),
    (changed(ADJOINT, "storage", [{"name": "a"}, {"name": "a"}]), "$.storage", "different names"),
    (changed(ADJOINT, "storage", [{"name": "working"}]), "$.storage", "other than 'working'"),
    (changed(ADJOINT, "storage", [{"name": "a", "slots": -1}]), "$.storage[0].slots", "number of slots"),
    (
        changed(ADJOINT, "storage", [{"name": "a", "slots": 1, "capacity": 2}]),
        "$.storage[0]",
        "both capacity and slots",
    ),
    (changed(ADJOINT, "storage", [{"name": "a", "bandwidth": 0}]), "$.storage[0].bandwidth", "never transfer"),
    (changed(ADJOINT, "initial_state", "disk"), "$.initial_state", "unknown level 'disk'"),
    (ADJOINT | {"storage": [{"name": "a"}], "machine": {}}, "$.machine", "either storage or machine"),
    (changed(ADJOINT, "state_size", 2**61), "$", "more than the largest total"),
    # dag
    (changed(DAG, "tasks", []), "$.tasks", "the list is empty"),
    (changed(DAG, "tasks.1.reads", ["q"]), "$.tasks[1].reads[0]", "'q' is not a value"),
    (changed(DAG, "tasks.1.reads", ["a", "a"]), "$.tasks[1].reads", "'a' is listed twice"),
    (changed(DAG, "tasks.1.writes", ["q"]), "$.tasks[1].writes[0]", "'q' is not a value"),
    (changed(DAG, "tasks.1.id", "s"), "$.tasks[1].id", "a second task is called 's'"),
    (changed(DAG, "values.1.id", "a"), "$.values[1].id", "a second value is called 'a'"),
    (changed(DAG, "tasks.0.writes", ...), "$.tasks[0]", "give either size"),
    (changed(DAG, "tasks.0.size", 4), "$.tasks[0]", "give either size"),
    (changed(changed(DAG, "tasks.0.writes", ...), "tasks.0.size", 4), "$.values", "'a' is neither an input nor"),
    (changed(DAG, "tasks.0.reads", ["b"]), "$.tasks[0].reads", "the graph has a cycle of 2 tasks: "),
    (changed(DAG, "tasks.0.once", 1), "$.tasks[0].once", "expected true or false"),
    (
        DAG | {"tasks": [*DAG["tasks"], {"id": "u", "time": 1, "writes": [], "required": False, "once": True}]},
        "$.tasks[2].once",
        "is required",
    ),
    (changed(DAG, "tasks.0.parallel", {"max": 0}), "$.tasks[0].parallel.max", "out of range"),
    (changed(DAG, "tasks.0.parallel", {"max": 2, "alpha": 1.5}), "$.tasks[0].parallel.alpha", "between 0 and 1"),
    (changed(DAG, "tasks.0.parallel", {"max": 2, "alpha": True}), "$.tasks[0].parallel.alpha", "between 0 and 1"),
    (changed(DAG, "inputs", ["q"]), "$.inputs[0]", "'q' is not a value"),
    (changed(DAG, "inputs", ["a", "a"]), "$.inputs[1]", "listed twice"),
    (changed(DAG, "inputs", [{"value": "a", "memory": "moon"}]), "$.inputs[0].memory", "unknown memory 'moon'"),
    (changed(DAG, "inputs", [5]), "$.inputs[0]", ""),
    (changed(DAG, "outputs", ["q"]), "$.outputs[0]", "'q' is not a value"),
    (changed(DAG, "pinned_inputs", ["a"]), "$.pinned_inputs[0]", "is not an input"),
    (changed(DAG, "tasks.1.writes", []), "$.values", "'b' is neither an input nor written"),
    (changed(DAG, "values.0.size", 2**62), "$", "more than the largest total"),
    (changed(DAG, "values.0.id", ""), "$.values[0].id", "must not be empty"),
    (changed(DAG, "tasks.0.id", "n" * 2000), "$.tasks[0].id", "2000 characters"),
    (changed(DAG, "tasks.0.id", 7), "$.tasks[0].id", "a name in quotes"),
    # tree
    (changed(TREE, "parent", []), "$.parent", "empty"),
    (changed(TREE, "parent", [-1, 2, -1]), "$.parent", "two roots, nodes 0 and 2"),
    (changed(TREE, "parent", [1, 2, 0]), "$.parent[0]", "run in a circle"),
    (changed(TREE, "parent", [1, 0, -1]), "$.parent[0]", "run in a circle"),
    (changed(TREE, "parent", [2, 5, -1]), "$.parent[1]", "not a node number"),
    (changed(TREE, "parent", [2, 1.0, -1]), "$.parent[1]", "not a node number"),
    (changed(TREE, "parent", "2"), "$.parent", "expected a list of node numbers"),
    (changed(TREE, "output_size", [1, 2]), "$.output_size", "2 entries for a tree of 3 nodes"),
    (changed(TREE, "output_size", [1, -2, 3]), "$.output_size[1]", "negative"),
    (changed(TREE, "output_size", {"a": 1}), "$.output_size", "expected a list of numbers"),
    (changed(TREE, "time", [1, 2, "x"]), "$.time[2]", "is not a time"),
    (changed(TREE, "names", ["a", "a", "b"]), "$.names", "the same name"),
    (changed(TREE, "orientation", "up"), "$.orientation", "'up' is not one of"),
    (changed(TREE, "output_size", [2**62, 2**62, 0]), "$", "more than the largest total"),
]


@pytest.mark.parametrize(("document", "path", "why"), BAD)
def test_what_is_no_instance(document, path, why):
    with pytest.raises(InstanceError) as caught:
        remat.instance.instance_from_document(document)
    message = str(caught.value)
    # Totals concern the whole document, wherever the rule happens to be checked.
    assert caught.value.path == path or (path == "$" and caught.value.path.startswith("$"))
    assert why in message
    assert "\n" not in message
    assert len(message) < 300


BAD_MACHINES = [
    ({"memories": []}, "$.machine.memories", "the list is empty"),
    ({"memories": [{"name": "m"}, {"name": "m"}]}, "$.machine", "two memory entries are called 'm'"),
    ({"memories": [{"name": "m"}]}, "$.machine.processors[0].memory", "unknown memory 'memory'"),
    ({"memories": [{"name": "m", "capacity": -1}]}, "$.machine.memories[0].capacity", "negative"),
    ({"processors": []}, "$.machine.processors", "the list is empty"),
    ({"processors": [{"name": "p", "memory": "memory", "count": 10**6}]}, "$.machine", "more than 4096 processors"),
    (
        {"processors": [{"name": "p", "memory": "memory", "count": 2}, {"name": "p1", "memory": "memory"}]},
        "$.machine",
        "two processor entries are called 'p1'",
    ),
    ({"links": [{"source": "memory", "target": "moon"}]}, "$.machine.links[0].target", "unknown memory 'moon'"),
    (
        {"links": [{"source": "memory", "target": "n", "bandwidth": 0}]},
        "$.machine.links[0].bandwidth",
        "never transfer",
    ),
    (
        {
            "memories": [{"name": "memory"}, {"name": "n"}],
            "links": [{"source": "memory", "target": "n"}, {"source": "memory", "target": "n"}],
        },
        "$.machine.links[1]",
        "a second link",
    ),
    (
        {
            "memories": [{"name": "memory"}, {"name": "n"}],
            "processors": [{"name": "p", "memory": "n", "count": 2}],
            "links": [{"source": "memory", "target": "n", "channel": "p"}],
        },
        "$.machine.links[0].channel",
        "names several processors",
    ),
]


@pytest.mark.parametrize(("machine", "path", "why"), BAD_MACHINES)
def test_what_is_no_machine(machine, path, why):
    with pytest.raises(InstanceError, match=why) as caught:
        load(CHAIN | {"machine": machine})
    assert caught.value.path == path
    with pytest.raises(InstanceError) as caught:
        load_machine(machine, Units())
    assert caught.value.path == path.replace("$.machine", "$")


def test_byte_suffixes_are_refused_where_memory_is_in_units():
    document = changed(CHAIN, "units", {"memory": "unit", "time": "unit"})
    with pytest.raises(InstanceError, match="counts memory in units"):
        load(changed(document, "input_size", "8GB"))
    with pytest.raises(InstanceError, match="counts time in units"):
        load(changed(document, "stages.0.forward_time", "8ms"))


def test_instances_are_immutable():
    instance = load(CHAIN)
    with pytest.raises(ValueError, match="frozen"):
        instance.input_size = 5


# ------------------------------------------------------------------------------------------------ digest


def test_the_digest_is_of_what_is_computed():
    same = [
        CHAIN | {"name": "other", "description": "words", "source": "somewhere"},
        CHAIN | {"units": {"time": "s", "memory": "B"}, "static_memory": 0, "loss": {}},
        changed(CHAIN, "stages.0.saving_forward_time", 1),
        changed(CHAIN, "stages.0.gradient_size", 3),
        changed(CHAIN, "stages.0.backward_reads", ["saved", "output", "input"]),
        changed(CHAIN, "stages.0.name", ""),
        dict(reversed(CHAIN.items())),
        changed(CHAIN, "stages.0.output_size", "3B"),
    ]
    expected = digest(load(CHAIN))
    assert expected.startswith("sha256:")
    assert len(expected) == 71
    assert {digest(load(document)) for document in same} == {expected}
    other = [
        changed(CHAIN, "stages.0.output_size", 4),
        changed(CHAIN, "stages.1.forward_time", 1.5),
        CHAIN | {"static_memory": 1},
        CHAIN | {"units": {"time": "unit"}},
        CHAIN | {"units": {"memory": "unit"}},
        CHAIN | {"units": {"time": "ms"}},
    ]
    digests = {digest(load(document)) for document in other}
    assert len(digests) == len(other)
    assert expected not in digests


def test_the_digest_does_not_depend_on_the_unit_of_time():
    slow = CHAIN | {
        "machine": {
            "memories": [{"name": "a"}, {"name": "b"}],
            "processors": [{"name": "p", "memory": "a"}],
            "links": [{"source": "a", "target": "b", "bandwidth": 4000, "latency": 0.25}],
        }
    }
    quick = changed(
        changed(slow, "units", {"time": "ms"}),
        "machine.links.0",
        {"source": "a", "target": "b", "bandwidth": 4, "latency": 250},
    )
    for stage in quick["stages"]:
        stage["forward_time"] *= 1000
        stage["backward_time"] *= 1000
    assert digest(load(quick)) == digest(load(slow))


@settings(max_examples=30, deadline=None)
@given(documents)
def test_the_digest_is_stable(document):
    assert digest(load(document)) == digest(load(json.loads(json.dumps(document, sort_keys=True))))


FIRST, SECOND, THIRD = "remat.instance/1", "remat.instance/2", "remat.instance/3"
HOST = {
    "memories": [{"name": "device"}, {"name": "host"}],
    "processors": [{"name": "gpu", "memory": "device"}, {"name": "cpu", "memory": "host"}],
}


def test_some_processor_has_speed_1():
    slow = HOST | {"processors": [entry | {"speed": 0.5} for entry in HOST["processors"]]}
    with pytest.raises(InstanceError, match="no processor has speed 1"):
        load(CHAIN | {"schema": SECOND, "machine": slow})
    mixed = HOST | {"processors": [HOST["processors"][0] | {"speed": 0.5}, HOST["processors"][1]]}
    load(CHAIN | {"schema": SECOND, "machine": mixed})


NEWER = [
    ("stages.0.parameter_size", 3),
    ("stages.1.parameter_gradient_size", 0),
    ("stages.1.optimizer_size", 2),
    ("stages.0.update_time", 0),
    ("parameter_memory", "host"),
    ("optimizer_memory", "host"),
    ("master_copy", False),
    ("machine.processors.1.speed", 1),
]


@pytest.mark.parametrize(("path", "value"), NEWER)
def test_newer_fields_need_the_second_schema(path, value):
    document = changed(CHAIN | {"machine": HOST}, path, value)
    with pytest.raises(InstanceError) as caught:
        load(document)
    assert SECOND in str(caught.value)
    assert re.sub(r"\.(\d+)", r"[\1]", path) in str(caught.value)
    load(document | {"schema": SECOND})


@pytest.mark.parametrize(
    ("path", "value", "wrong"),
    [
        ("stages.0.update_time", 2, "has no update"),
        ("stages.0.parameter_gradient_size", 2, "has no update"),
        ("stages.0.parameter_size", -1, "negative"),
        ("parameter_memory", "disk", "unknown memory 'disk'"),
        ("machine.processors.1.speed", 0, "out of range"),
        ("machine.processors.1.speed", 1.5, "out of range"),
        ("machine.processors.1.speed", True, "expected a number"),
        ("machine.processors.1.speed", float("nan"), "out of range"),
        ("stages.0.optimizer_size", 2**61, "add up to"),
    ],
)
def test_parameters_and_speeds_that_cannot_be(path, value, wrong):
    document = changed(CHAIN | {"machine": HOST, "schema": SECOND}, path, value)
    with pytest.raises(InstanceError, match=wrong) as caught:
        load(document)
    if wrong != "add up to":
        assert re.sub(r"\.(\d+)", r"[\1]", path) in str(caught.value)


@pytest.mark.parametrize("text", ["0.0625", "1", "1.0", "5e-1"])
def test_speeds_are_read_from_text(text):
    document = changed(CHAIN | {"machine": HOST, "schema": SECOND}, "machine.processors.1.speed", "?")
    instance = load(io.StringIO(json.dumps(document).replace('"?"', text)))
    (_, slower) = instance.machine.build().processors
    assert slower.speed == float(text)
    assert type(slower.speed) is (int if slower.speed == 1 else float)


@settings(max_examples=60, deadline=None)
@given(documents)
def test_the_lowest_schema_is_written(document):
    instance = load(document)
    written = instance_document(instance)
    again = load(written)
    assert digest(again) == digest(instance)
    newer = [
        *NEWER_KEYS & written.keys(),
        *(key for part in written.get("stages", ()) for key in NEWER_KEYS & part.keys()),
    ]
    newer += [p for p in written.get("machine", {}).get("processors", ()) if "speed" in p]
    third = instance.kind in ("pipeline", "join") or "sharding" in written
    third |= any("bucket_size" in stage for stage in written.get("stages", ()))
    third |= "any" in (written.get("parameter_memory"), written.get("optimizer_memory"))
    links = written.get("machine", {}).get("links", ())
    third |= any(link["source"] == link["target"] or {"ratio", "codec"} & link.keys() for link in links)
    assert written["schema"] == (THIRD if third else SECOND if newer else FIRST)


ANNOTATED = [
    ("tasks.0.origin", {"module": "layer3.5.conv2", "op": "aten.convolution", "source": "resnet.py:93"}),
    ("tasks.1.origin", {"module": "m" * 1000}),
    ("values.0.shape", [2, 0, 2**62]),
    ("values.1.shape", []),
    ("values.1.dtype", "float32"),
]


@pytest.mark.parametrize(("path", "value"), ANNOTATED)
@pytest.mark.parametrize("schema", [FIRST, SECOND])
def test_annotations_need_the_third_schema_and_are_not_in_the_digest(path, value, schema):
    document = changed(DAG, path, value)
    with pytest.raises(InstanceError) as caught:
        load(document | {"schema": schema})
    assert THIRD in str(caught.value)
    assert re.sub(r"\.(\d+)", r"[\1]", path) in str(caught.value)
    loaded = load(document | {"schema": THIRD})
    assert digest(loaded) == digest(load(DAG))
    written = instance_document(loaded)
    assert written["schema"] == THIRD
    key, index, name = path.split(".")
    assert written[key][int(index)][name] == value


@pytest.mark.parametrize(
    ("path", "value", "wrong"),
    [
        ("tasks.0.origin", None, "expected an object"),
        ("tasks.0.origin", {"line": "3"}, "unknown key"),
        ("tasks.0.origin.module", 3, "expected a text"),
        ("tasks.0.origin.op", "m" * 1001, "1000"),
        ("values.0.shape", 3, "expected a list"),
        ("values.0.shape", [1] * 65, "65 dimensions"),
        ("values.0.shape.0", -1, "from 0 to 2"),
        ("values.0.shape.0", 2**62 + 1, "from 0 to 2"),
        ("values.0.shape.0", True, "from 0 to 2"),
        ("values.0.shape.0", 1.0, "from 0 to 2"),
        ("values.0.dtype", None, "expected a text"),
    ],
)
def test_annotations_that_cannot_be(path, value, wrong):
    document = changed(changed(DAG | {"schema": THIRD}, "tasks.0.origin", {}), "values.0.shape", [1])
    with pytest.raises(InstanceError, match=wrong) as caught:
        load(changed(document, path, value))
    assert re.sub(r"\.(\d+)", r"[\1]", path) in str(caught.value)


@settings(max_examples=30, deadline=None)
@given(annotated())
def test_annotated_graphs_are_those_without_annotations(pair):
    plain, document = pair
    instance = load(document)
    assert digest(instance) == digest(load(plain))
    written = instance_document(instance)
    said = any(
        entry.get(name) not in (None, "", {}) and any(entry[name].values() if name == "origin" else [True])
        for key, names in ANNOTATIONS.items()
        for entry in document[key]
        for name in names
    )
    assert (written["schema"] == THIRD) == said
    assert load(written) == instance.model_copy(update={"schema_": written["schema"]})


def test_a_schedule_found_without_annotations_is_one_of_the_annotated_graph():
    schedule = remat.solve(DAG).to_dict()
    told = changed(changed(DAG | {"schema": THIRD}, "tasks.0.origin", {"module": "stem"}), "values.0.shape", [1])
    assert remat.verify(told, schedule).ok
    assert not remat.verify(changed(DAG, "values.0.size", 2), schedule).ok


NEWER_KEYS = {path.rpartition(".")[2] for path, _ in NEWER} - {"speed"}


def test_digests_of_parameters():
    trained = CHAIN | {"schema": SECOND, "stages": [CHAIN["stages"][0] | {"parameter_size": 3, "optimizer_size": 4}]}
    spelt = changed(trained, "stages.0.parameter_gradient_size", 3)
    assert digest(load(spelt)) == digest(load(trained))
    assert digest(load(CHAIN | {"schema": SECOND})) == digest(load(CHAIN))
    others = [
        changed(trained, "stages.0.parameter_gradient_size", 2),
        changed(trained, "stages.0.update_time", 2),
        trained | {"master_copy": True},
        trained | {"parameter_memory": "memory"},
    ]
    assert len({digest(load(other)) for other in [trained, *others]}) == 5
    slow = changed(changed(trained, "stages.0.update_time", 2), "units", {"time": "s"})
    quick = changed(changed(slow, "units", {"time": "ms"}), "stages.0.update_time", 2000)
    for stage in quick["stages"]:
        stage["forward_time"] *= 1000
        stage["backward_time"] *= 1000
    assert digest(load(quick)) == digest(load(slow))


OF_THE_FIRST_SCHEMA = {
    "chains/gpt2_xl_b4": "sha256:4f6f054128ae09d68b8467741246ae0a6da7bbfb217f686c7d92e56d55cac22d",
    "adjoint/lecture_l5": "sha256:58130a2900a3ce519e6c6a089da693c777fdb9671935000a887364abccd38373",
    "dags/unet_joint": "sha256:e821e252479dc6158404f141ee160d6da6df8e93d07bf55c353d6de377a1a4f9",
    "trees/random_n200": "sha256:74991a153ed616bf75bed9aa1ed6d9f519dc4db4da06872b3137382e15486e87",
}


@pytest.mark.parametrize(("name", "expected"), OF_THE_FIRST_SCHEMA.items())
def test_digests_of_the_first_schema_stay(name, expected):
    """As they were before there was a second schema: schedules refer to instances by them."""
    assert digest(load(places.INSTANCES / f"{name}.json")) == expected
