"""Test the conversion of tensor-parallel layer profiles to pipelines; errors name the path."""

import copy

import pytest

import remat
from remat.bridges.placement_profiles.tensor_parallel import Chosen, import_layers
from remat.errors import InstanceError


def way(time, parameters, held, always, name="vanilla"):
    return {
        "id": name,
        "timePerSample": time,
        "parameterSize": parameters,
        "memoryUsageA": held,
        "memoryUsageB": always,
    }


PROFILE = {
    "maxDevices": 2,
    "maxMemoryPerDevice": 1000,
    "bandwidth": 10,
    "nodes": [
        {"id": 0, "name": "first", "TMPCs": {"1": [way(0.3, 10, 12, 20), way(0.4, 10, 2, 20, "activation recomp")]}},
        {"id": 2, "name": "last", "TMPCs": {"1": [way(0.9, 20, 4, 80)]}},
        {"id": 1, "name": "middle", "TMPCs": {"1": [way(0.6, 0, 6, 0)]}},
    ],
    "edges": [
        {"sourceId": 0, "destId": 1, "communicationCost": 5},
        {"sourceId": 1, "destId": 2, "communicationCost": 7},
        {"sourceId": 0, "destId": 2, "communicationCost": 4},
    ],
}


def test_what_a_profile_becomes():
    found = import_layers(PROFILE, Chosen(micro_batches=4))
    layers = found.instance.each_layer()
    assert [layer.name for layer in layers] == ["first0", "middle1", "last2"]
    assert [layer.reads for layer in layers] == [("previous",), ("previous",), ("first0", "previous")]
    assert [layer.forward_time + layer.backward_time for layer in layers] == pytest.approx([0.3, 0.6, 0.9])
    assert [(layer.output_size, layer.saved_size) for layer in layers] == [(5, 7), (7, 0), (0, 4)]
    # What is held throughout: parameters, as many bytes of gradients, and the rest.
    sizes = [(layer.parameter_size, layer.parameter_gradient_size, layer.optimizer_size) for layer in layers]
    assert sizes == [(10, 10, 0), (0, 0, 0), (20, 20, 40)]
    assert "edges from node 0 differ in bytes" in found.notes[0]
    result = remat.solve(found.instance, algorithm="tarnawski-dp")
    assert result.makespan is not None


def test_another_way_to_run_them():
    document = copy.deepcopy(PROFILE)
    document["nodes"] = document["nodes"][:1]
    document["edges"] = []
    chosen = Chosen(devices=3, memory="2kB", bandwidth="25GiB/s", way="activation recomp", forward_share=0.5)
    layer = import_layers(document, chosen).instance.each_layer()[0]
    assert (layer.forward_time, layer.saved_size) == (0.2, 2)


def in_groups():
    """Return the profile with figures of two and four devices for some of the layers."""
    document = copy.deepcopy(PROFILE)
    document["nodes"][0]["TMPCs"] |= {"2": [way(0.2, 5, 9, 10)], "4": [way(0.1, 3, 8, 5, "activation recomp")]}
    document["nodes"][1]["TMPCs"] |= {"2": [way(0.6, 10, 3, 40)]}
    return document


def test_what_several_devices_have():
    layers = import_layers(in_groups()).instance.each_layer()
    assert [list(layer.tensor) for layer in layers] == [["2"], [], ["2"]]
    work = layers[0].tensor["2"]
    assert work.forward_time + work.backward_time == pytest.approx(0.2)
    assert (work.output_size, work.saved_size) == (5, 4)
    assert work.of_parameters == (5, 5, 0)
    assert layers[2].tensor["2"].of_parameters == (10, 10, 20)


@pytest.mark.parametrize("chosen", [Chosen(tensor=(1,)), Chosen(tensor=(4,)), Chosen(weights="stash")])
def test_what_is_left_out(chosen):
    document = in_groups()
    document["edges"].pop(2)  # parameters that change meanwhile go with layers in a row
    assert not import_layers(document, chosen).instance.has_tensor


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["nodes"][1].update(id=0), r"nodes\[1\]\.id: a second node 0"),
        (lambda d: d["edges"][0].update(destId=5), r"edges\[0\]\.destId: no node 5"),
        (lambda d: d["nodes"][2].update(TMPCs={}), r"nodes\[2\]\.TMPCs\.1: expected a list of execution variants"),
        (lambda d: d["nodes"][2]["TMPCs"]["1"][0].update(id="other"), "unknown variant 'vanilla'; the node has other"),
        (lambda d: d["edges"].append(dict(d["edges"][0], sourceId=2, destId=0)), "the edges have a cycle"),
        (lambda d: d["edges"].pop(1) and d["edges"].pop(1), "have no reader, but only the last layer may"),
        (lambda d: d.update(bandwidth=0), "bandwidth"),
        (lambda d: d["nodes"][0]["TMPCs"].update({"2": {}}), r"TMPCs\.2: expected a list of execution variants"),
        (lambda d: d["nodes"][0]["TMPCs"].update(two=[way(1, 1, 1, 1)]), "'two' is not a number of devices"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    document = copy.deepcopy(PROFILE)
    change(document)
    with pytest.raises(InstanceError, match=message):
        import_layers(document)
