"""A chain as a pipeline: every field is carried over, has no meaning there, or is refused."""

import pytest

import remat
from remat.instance.chain import ChainInstance, Stage
from remat.solving.questions import chain_as_pipeline
from remat.solving.questions.chain_as_pipeline import document_of_chain

STAGE = {"forward_time": 2, "backward_time": 4, "output_size": 1, "parameter_size": 3, "optimizer_size": 6}
MACHINE = {
    "memories": [{"name": "host"}, {"name": "device", "capacity": 99}],
    "processors": [{"name": "gpu", "memory": "device"}],
}
CHAIN = {
    "schema": "remat.instance/3",
    "kind": "chain",
    "input_size": 1,
    "stages": [STAGE | {"name": f"block {number}"} for number in range(4)],
    "loss": {"time": 1},
    "machine": MACHINE,
    "optimizer_memory": "device",
}


def document(**more):
    return document_of_chain(remat.load(CHAIN | more), 2, 3, 10)


def test_every_field_is_decided():
    groups = (chain_as_pipeline.CARRIED, chain_as_pipeline.WITHOUT_MEANING, chain_as_pipeline.REFUSED)
    decided = [name for group in groups for name in group]
    assert sorted(decided) == sorted({*ChainInstance.model_fields, *Stage.model_fields})


def test_devices_hold_what_the_working_memory_holds():
    pipeline = remat.load(document())
    assert {device.memory for device in pipeline.cluster.devices} == {99}
    assert [layer.backward_time for layer in pipeline.layers] == [4, 4, 4, 5]
    assert pipeline.layers[0].of_parameters == (3, 3, 6)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"optimizer_memory": "host"},
            "in 'host' .*: generate it with optimizer states on the device, or set",
        ),
        ({"parameter_memory": "host"}, "keeps them in 'host'"),
        ({"parameter_memory": "any"}, "leaves their place to the schedule"),
        ({"in_place": True}, "in place"),
        ({"stages": [STAGE | {"bucket_size": 2}]}, "bucket_size"),
        ({"stages": [STAGE | {"variants": [{"saved_size": 1}]}]}, "variants"),
        ({"sharding": {"data": 2}}, "no ranks"),
        ({"stages": [{"forward_time": 1, "backward_time": 1, "output_size": 1}]}, "no parameters"),
    ],
)
def test_what_a_pipeline_cannot_say_is_refused(more, message):
    with pytest.raises(remat.OptionError, match=message):
        document(**more)
