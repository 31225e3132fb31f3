"""Test pipeline documents: errors with their paths, the digest, and the round trip."""

import json

import pytest
from hypothesis import given, settings

from remat.errors import InstanceError
from remat.instance import digest, instance_document, load
from remat.instance.lowering import lower, machine_of
from tests.instance.documents import pipelines
from tests.instance.test_loading import SCHEMA, changed

LAYER = {"forward_time": 1, "backward_time": 2, "output_size": 3, "saved_size": 4, "parameter_size": 5}
HALVES = LAYER | {"backward_time": 1, "weight_time": 1, "weight_saved_size": 2}
TYPED = LAYER | {"forward_time": {"quick": 1, "slow": 3}}
PIPELINE = {
    "schema": "remat.instance/3",
    "kind": "pipeline",
    "micro_batches": 2,
    "layers": [
        LAYER | {"name": "first"},
        HALVES | {"name": "second"},
        TYPED | {"reads": ["previous", "first"]},
    ],
    "cluster": {
        "devices": [{"name": "a", "type": "quick", "count": 2, "memory": 50}, {"name": "slow", "count": 2}],
        "levels": [{"devices": 2, "bandwidth": 8, "latency": 1}, {"bandwidth": 2, "delay": 3}],
    },
}

BAD = [
    ("micro_batches", 0, "$.micro_batches", "out of range"),
    ("micro_batches", -1, "$.micro_batches", "out of range"),
    ("micro_batches", 1.5, "$.micro_batches", ""),
    ("micro_batches", ..., "$.micro_batches", "missing"),
    ("layers", [], "$.layers", "empty"),
    ("layers", ..., "$.layers", "missing"),
    ("layers.0.repeat", 0, "$.layers[0].repeat", "out of range"),
    ("layers.0.forward_time", ..., "$.layers[0].forward_time", "missing"),
    ("layers.1.backward_time", -1, "$.layers[1].backward_time", "out of range"),
    ("layers.2.forward_time.slow", "x", "$.layers[2].forward_time.slow", "is not a time"),
    ("layers.2.forward_time", {"other": 1}, "$.layers[2]", "no device of the cluster can run this layer"),
    ("layers.2.forward_time", {}, "$.layers[2].forward_time", ""),
    ("layers.2.backward_time", {"other": 1}, "$.layers[2]", "no device of the cluster can run this layer"),
    ("layers.1.weight_time", {"other": 1}, "$.layers[1]", "no device of the cluster can run this layer"),
    ("layers.0.weight_saved_size", 1, "$.layers[0].weight_saved_size", "weight_time"),
    ("layers.1.weight_time", 0, "$.layers[1].weight_saved_size", "weight_time"),
    ("layers.0.saved_size", -1, "$.layers[0].saved_size", "negative"),
    ("layers.0.saved_sizes", 1, "$.layers[0].saved_sizes", "unknown key"),
    ("layers.0.backward_reads", ["gradient"], "$.layers[0].backward_reads[0]", ""),
    ("backward_reads", ["weights"], "$.backward_reads[0]", ""),
    ("copies", 0, "$.copies", "out of range"),
    ("layers.2.reads", [], "$.layers[1]", "no later layer reads 'second'; the loss belongs to the last layer"),
    ("layers.2.reads", ["first"], "$.layers[1]", "no later layer reads 'second'"),
    ("layers.2.reads", ["previous", "fist"], "$.layers[2].reads", "did you mean 'first'?"),
    ("layers.2.reads", ["previous", "previous"], "$.layers[2].reads", "named twice"),
    ("layers.2.reads", ["previous", "second"], "$.layers[2].reads", "is the layer before"),
    ("layers.0.reads", ["previous", "second"], "$.layers[0].reads", "no layer before is called 'second'"),
    ("layers.2.reads", "previous", "$.layers[2].reads", ""),
    ("layers.1.name", "first", "$.layers[2].reads", "2 layers are called 'first'"),
    ("weights", "stash", "$.layers[2].reads", "with weights stash"),
    ("layers.0.update_time", -1, "$.layers[0].update_time", "out of range"),
    ("exchange", "tree", "$.exchange", ""),
    ("sharding", {"zero": 3}, "$.sharding.data", "missing"),
    ("sharding", {"data": 1, "zero": 3}, "$.sharding.data", "but there is one"),
    ("sharding", {"data": 3}, "$.sharding.data", "3 does not divide the 4 devices of the cluster"),
    ("sharding", {"data": 4}, "$.sharding.data", "the ranks a0, a1, slow0, slow1 are devices of different kinds"),
    ("sharding", {"data": 2, "zero": 4}, "$.sharding.zero", "0 to 3, not 4"),
    ("sharding", {"data": 2, "zero": 1, "keep": True}, "$.sharding.keep", "once a step anyway"),
    ("sharding", {"data": 2, "bucket": 5}, "$.sharding.bucket", "unknown key"),
    ("cluster.transfers", "sometimes", "$.cluster.transfers", ""),
    ("weights", "stale", "$.weights", ""),
    ("batches", 1, "$.batches", "unknown key"),
    ("cluster", ..., "$.cluster", "missing"),
    ("cluster.links", [], "$.cluster.links", "unknown key"),
    ("cluster.devices", [], "$.cluster.devices", "empty"),
    ("cluster.devices.0.count", 0, "$.cluster.devices[0].count", "out of range"),
    ("cluster.devices.0.memory", -1, "$.cluster.devices[0].memory", "negative"),
    ("cluster.devices.0.name", "", "$.cluster.devices[0].name", "must not be empty"),
    ("cluster.devices.0.speed", 1, "$.cluster.devices[0].speed", "unknown key"),
    ("cluster.devices.1", {"name": "a1"}, "$.cluster.devices", "two devices are called 'a1'"),
    ("cluster.devices.1.name", "a", "$.cluster.devices", "two devices are called 'a0'"),
    ("cluster.devices.0.count", 10**4, "$.cluster.devices", "more than 256 devices"),
    ("cluster.levels.0.devices", 0, "$.cluster.levels[0].devices", "out of range"),
    ("cluster.levels.0.devices", ..., "$.cluster.levels[0].devices", "only the last level"),
    ("cluster.levels.0.bandwidth", 0, "$.cluster.levels[0].bandwidth", "never transfer"),
    ("cluster.levels.1.delay", -1, "$.cluster.levels[1].delay", "out of range"),
    ("cluster.levels.1.devices", 3, "$.cluster.levels[1].devices", "use a larger multiple of 2, the level before"),
    ("cluster.levels.1.devices", 2, "$.cluster.levels[1].devices", "use a larger multiple of 2, the level before"),
    ("cluster.levels", [{"devices": 2}], "$.cluster.levels[0].devices", "joins 2 of 4 devices"),
    ("machine", {"memories": [{"name": "memory"}]}, "$.machine", "a pipeline has a cluster instead of a machine"),
    ("static_memory", 1, "$.static_memory", "several working memories"),
    ("schema", "remat.instance/2", "$.schema", "remat.instance/3"),
    ("schema", "remat.instance/1", "$.schema", "remat.instance/3"),
    ("layers.0.saved_size", 2**61, "$", "add up to"),
    ("micro_batches", 10**10, "$.micro_batches", "out of range"),
]


SHARDED = PIPELINE | {"sharding": {"data": 2, "zero": 2}}
BESIDE_RANKS = [
    ("exchange", "ring", "$.exchange", "cannot be combined with exchange"),
    ("copies", 2, "$.copies", "cannot be combined with copies"),
    ("cluster.transfers", "blocking", "$.sharding", "need the transfers overlap, not blocking"),
]


@pytest.mark.parametrize(("path", "value", "where", "why"), BESIDE_RANKS)
def test_what_is_not_beside_ranks(path, value, where, why):
    with pytest.raises(InstanceError) as caught:
        load(changed(SHARDED, path, value))
    assert caught.value.path == where
    assert why in str(caught.value)


def test_ranks_are_one_device():
    """The first of each two neighbours is there, with a link to itself, as quick as the level that joins the two."""
    machine = machine_of(load(SHARDED))
    assert [memory.name for memory in machine.memories] == ["a0", "slow0"]
    ways = {(link.source, link.target): (link.bandwidth, link.latency, link.delay) for link in machine.links}
    assert ways == {(0, 0): (8, 1, 0), (1, 1): (8, 1, 0), (0, 1): (2, 0, 3), (1, 0): (2, 0, 3)}


@pytest.mark.parametrize(("path", "value", "where", "why"), BAD)
def test_what_is_no_pipeline(path, value, where, why):
    with pytest.raises(InstanceError) as caught:
        load(changed(PIPELINE, path, value))
    assert caught.value.path == where
    assert why in str(caught.value)


def test_devices_and_levels():
    """Names, types and memories of devices; of two devices, the smallest level that has both in one group counts."""
    machine = machine_of(load(PIPELINE))
    assert [memory.name for memory in machine.memories] == ["a0", "a1", "slow0", "slow1"]
    assert [memory.capacity for memory in machine.memories] == [50, 50, None, None]
    assert [processor.name for processor in machine.processors] == ["a0", "a1", "slow0", "slow1"]
    assert [processor.type for processor in machine.processors] == ["quick", "quick", "slow", "slow"]
    assert len(machine.links) == 12
    assert len(set(machine.resource_of_link)) == 12
    for link in machine.links:
        near = link.source // 2 == link.target // 2
        assert (link.bandwidth, link.latency, link.delay) == ((8, 1, 0) if near else (2, 0, 3))


# --- digest and round trip --------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(pipelines())
def test_documents_survive_a_round_trip(document):
    instance = load(document)
    written = instance_document(instance)
    SCHEMA.validate(written)
    again = load(json.loads(json.dumps(written, sort_keys=True)))
    assert again == load(written)
    assert instance_document(again) == written
    assert digest(again) == digest(instance)
    assert digest(load(json.loads(json.dumps(document, sort_keys=True)))) == digest(instance)


def test_the_digest_is_of_what_is_computed():
    expected = digest(load(PIPELINE))
    same = [
        PIPELINE | {"name": "other", "description": "words", "source": "somewhere"},
        PIPELINE | {"copies": 1, "weights": "flush", "backward_reads": ["input", "output", "saved"]},
        changed(PIPELINE, "layers.2.name", ""),
        changed(PIPELINE, "layers.2.reads", ["first", "previous"]),
        changed(PIPELINE, "layers.0.repeat", 1),
        changed(PIPELINE, "layers.0.gradient_size", 3),
        changed(PIPELINE, "layers.0.parameter_gradient_size", 5),
        changed(PIPELINE, "layers.0.weight_time", 0),
        changed(PIPELINE, "cluster.levels.1.latency", 0),
    ]
    assert {digest(load(document)) for document in same} == {expected}
    other = [
        changed(PIPELINE, "micro_batches", 3),
        changed(PIPELINE, "layers.2.reads", ["previous"]),
        changed(PIPELINE, "cluster.transfers", "grouped"),
        changed(PIPELINE, "layers.1.weight_time", 2),
        changed(PIPELINE, "layers.1.weight_saved_size", 1),
        changed(PIPELINE, "layers.2.forward_time.slow", 4),
        changed(PIPELINE, "layers.0.backward_reads", []),
        changed(PIPELINE, "cluster.devices.0.count", 3),
        changed(PIPELINE, "cluster.devices.0.memory", 49),
        changed(PIPELINE, "cluster.levels.1.delay", 2),
        changed(PIPELINE, "cluster.levels.0.latency", 0),
        PIPELINE | {"copies": 2},
        PIPELINE | {"units": {"time": "ms"}},
    ]
    assert len({digest(load(document)) for document in other} | {expected}) == len(other) + 1


def test_the_digest_does_not_depend_on_the_unit_of_time():
    quick = PIPELINE | {"units": {"time": "ms"}}
    quick = json.loads(json.dumps(quick))
    for layer in quick["layers"]:
        for key in ("forward_time", "backward_time", "weight_time"):
            if isinstance(layer.get(key), dict):
                layer[key] = {kind: 1000 * time for kind, time in layer[key].items()}
            elif key in layer:
                layer[key] *= 1000
    quick["cluster"]["levels"] = [
        {"devices": 2, "bandwidth": 8 / 1000, "latency": 1000},
        {"bandwidth": 2 / 1000, "delay": 3000},
    ]
    assert digest(load(quick)) == digest(load(PIPELINE | {"units": {"time": "s"}}))


def test_times_and_sizes_as_text():
    """A device's memory, a level's bandwidth and times by type may have units."""
    text = changed(PIPELINE, "cluster.devices.0.memory", "50B")
    text = changed(text, "layers.2.forward_time", {"quick": "1s", "slow": "3000ms"})
    text = changed(text, "cluster.levels.0.bandwidth", "8B/s")
    text = changed(text, "cluster.levels.1.delay", "3s")
    assert digest(load(text)) == digest(load(PIPELINE))


MACHINE = {
    "memories": [{"name": "m"}, {"name": "n"}],
    "processors": [{"name": "p", "memory": "m"}],
    "links": [{"source": "m", "target": "n"}],
}
CHAIN = {"kind": "chain", "input_size": 1, "stages": [{"forward_time": 1, "backward_time": 2, "output_size": 3}]}


@pytest.mark.parametrize("path", ["machine.processors.0.type", "machine.links.0.delay"])
@pytest.mark.parametrize("schema", ["remat.instance/1", "remat.instance/2"])
def test_newer_fields_need_the_third_schema(schema, path):
    value = 1 if path.endswith("delay") else "quick"
    chain = CHAIN | {"schema": schema, "machine": MACHINE}
    newer = changed(chain, path, value)
    with pytest.raises(InstanceError, match=r"remat\.instance/3") as caught:
        load(newer)
    assert path.rpartition(".")[2] in str(caught.value)
    third = load(newer | {"schema": "remat.instance/3"})
    assert instance_document(third)["schema"] == "remat.instance/3"
    assert digest(third) != digest(load(chain))


@pytest.mark.parametrize("schema", ["remat.instance/2", "remat.instance/3"])
def test_the_schema_is_no_part_of_the_digest(schema):
    chain = CHAIN | {"schema": "remat.instance/1", "machine": MACHINE}
    again = load(chain | {"schema": schema})
    assert digest(again) == digest(load(chain))
    assert instance_document(again)["schema"] == "remat.instance/1"


# --- divisions of the batch -------------------------------------------------------------------------------------------

_WORK = {"forward_time": 1, "backward_time": 2}
_TWO = {"tokens": 2, "layers": [_WORK]}
DIVIDED = {
    "schema": "remat.instance/3",
    "kind": "pipeline",
    "micro_batches": 4,
    "layers": [_WORK | {"repeat": 2}],
    "cluster": {"devices": [{"name": "d", "count": 2}]},
}
SIZED = DIVIDED | {"samples": 1, "sizes": [{"samples": 2, "layers": [_WORK]}]}
PARTED = DIVIDED | {"samples": 4, "copies": 2, "parts": [{"samples": 2, "layers": [_WORK]}]}
SLICED = DIVIDED | {"tokens": {"length": 4, "slices": [_TWO, _TWO | {"before": 2}], "cut": [2, 2]}}


@pytest.mark.parametrize(
    ("document", "path", "value", "where", "why"),
    [
        (SIZED, "samples", None, "$.samples", "want the samples"),
        (SIZED, "samples", 0, "$.samples", "out of range"),
        (SIZED, "sizes.0.samples", 1, "$.sizes[0].samples", "that of `layers`"),
        (SIZED, "sizes.0.samples", 3, "$.sizes[0].samples", "4 samples (4 micro-batches of 1) are not a multiple of 3"),
        (SIZED, "sizes", SIZED["sizes"] * 2, "$.sizes[1].samples", "given twice"),
        (SIZED, "sizes.0.layers", [_WORK, _WORK], "$.sizes[0].layers", "2 entries, and the instance has 1 layers"),
        (SIZED, "sizes.0.layers.0.weight_time", 1, "$.sizes[0].layers[0]", "has a weight_time, and the layer has none"),
        (SIZED, "sizes.0.layers.0.weight_saved_size", 1, "$.sizes[0].layers[0].weight_saved_size", "keeps something"),
        (SIZED, "sizes.0.layers.0.paired_time", 3, "$.sizes[0].layers[0]", "the instance's own layers only"),
        (SIZED, "sizes.0.layers.0.forward_time", {"d": 1}, "$.sizes[0].layers[0]", "other types of devices"),
        (SIZED, "sizes.0.layers.0.repeat", 2, "$.sizes[0].layers[0].repeat", "unknown key"),
        (SIZED, "weights", "stash", "$.sizes", "micro-batches are as they are given"),
        (SIZED, "tokens", SLICED["tokens"], "$.sizes", "either sizes of micro-batches or slices"),
        (PARTED, "samples", None, "$.samples", "parts want the samples"),
        (PARTED, "parts.0.samples", 4, "$.parts[0].samples", "not a part of a micro-batch of 4"),
        (PARTED, "parts.0.samples", 3, "$.parts[0].samples", "not a part of a micro-batch of 4"),
        (PARTED, "parts", PARTED["parts"] * 2, "$.parts[1].samples", "given twice"),
        (PARTED, "parts.0.layers", [], "$.parts[0].layers", ""),
        (PARTED | {"copies": 1}, "weights", "stash", "$.parts", "as they are given, and whole"),
        (SLICED, "copies", 2, "$.copies", "stay on one device"),
        (SLICED, "weights", "single", "$.tokens", "micro-batches are as they are given"),
        (SLICED, "micro_batches", 3, "$.micro_batches", "not a whole number of sequences of 2 slices"),
        (SLICED, "tokens.cut", [2], "$.tokens.cut", "2 tokens in all, and a sequence has 4"),
        (SLICED, "tokens.cut", [3, 1], "$.tokens.cut", "no slice of 3 tokens after 0"),
        (SLICED, "tokens.cut", [1] * 300, "$.tokens.cut", "at most 256"),
        (SLICED, "tokens.length", 3, "$.tokens.slices[1]", "the slice ends at token 4, and a sequence has 3"),
        (SLICED, "tokens.slices.1.before", 0, "$.tokens.slices[1]", "given twice"),
        (SLICED, "tokens.slices.1.before", -1, "$.tokens.slices[1].before", ""),
        (SLICED, "tokens.slices", [], "$.tokens.slices", ""),
    ],
)
def test_what_is_no_division(document, path, value, where, why):
    load(document)
    with pytest.raises(InstanceError) as caught:
        load(changed(document, path, value))
    assert caught.value.path == where
    assert why in str(caught.value)


def test_a_division_is_an_instance():
    """Choosing a size or a cut gives the same digest as an instance with that choice."""
    sized = load(SIZED).of_samples(2)
    alone = DIVIDED | {"samples": 2, "micro_batches": 2}
    assert digest(sized) == digest(load(alone))
    slices = load(SLICED | {"tokens": {"length": 4, "slices": SLICED["tokens"]["slices"]}})
    assert digest(slices.of_cut((2, 2))) == digest(load(SLICED | {"micro_batches": 8}))
    with pytest.raises(ValueError, match="no slice of 4 tokens after 0"):
        slices.of_cut((4,))


def test_a_backward_reads_the_gradients_of_all_readers():
    graph = lower(load(PIPELINE))
    reads = names_read(graph, "B1.0")
    assert {name for name in reads if name.startswith("y")} == {"y1.0", "y1.3.0"}


def test_a_slice_reads_what_all_earlier_slices_saved():
    times = [_TWO | {"before": before} for before in (0, 2, 4)]
    tokens = {"length": 6, "slices": times, "cut": [2, 2, 2]}
    graph = lower(load(DIVIDED | {"micro_batches": 3, "tokens": tokens}))
    own = set(names_read(graph, "Fe1.0"))
    earlier = [set(names_read(graph, f"Fe1.{k}")) - own for k in range(3)]
    assert [len(names) for names in earlier] == [0, 1, 2]
    assert earlier[1] < earlier[2]


def names_read(graph, task):
    return [graph.values[value] for value in graph.reads[graph.tasks.find(task)]]
