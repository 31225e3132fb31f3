from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import remat
from remat.generate import generate
from remat.generate.networks.classifiers import DENSENET, densenet, fcn8, inception, mobilenet, resnet_graph, vgg
from remat.generate.networks.images import ImageKernels
from remat.generate.networks.operations import Device, Tensor
from remat.generate.networks.training import Network, training_graph
from tests.generate.networks.test_unet_mlp import checked

Generator = Callable[..., dict[str, Any]]

# Parameters, and billions of multiply-adds of a forward, of the models that torchvision ships; He et al. 2016 count
# 19.6 for VGG-19, Szegedy et al. 2016 about 5 for Inception-v3.
PUBLISHED: list[tuple[Generator, dict[str, Any], int, float]] = [
    (vgg, {"depth": "11"}, 132_863_336, 7.6),
    (vgg, {"depth": "13"}, 133_047_848, 11.3),
    (vgg, {"depth": "16"}, 138_357_544, 15.5),
    (vgg, {"depth": "16", "norm": True}, 138_361_768, 15.5),
    (vgg, {"depth": "19"}, 143_667_240, 19.6),
    (resnet_graph, {"depth": "18"}, 11_689_512, 1.8),
    (resnet_graph, {"depth": "50"}, 25_557_032, 4.1),
    (resnet_graph, {"depth": "50", "norm": "in-place"}, 25_557_032, 4.1),
    (resnet_graph, {"depth": "152"}, 60_192_808, 11.5),
    (densenet, {"depth": "121"}, 7_978_856, 2.8),
    (densenet, {"depth": "161"}, 28_681_000, 7.7),
    (densenet, {"depth": "169", "features": "copied"}, 14_149_480, 3.4),
    (densenet, {"depth": "201", "norm": "saved"}, 20_013_928, 4.3),
    (inception, {}, 23_834_568, 5.7),
    (mobilenet, {}, 4_231_976, 0.569),  # Howard et al. 2017: 4.2 million, 569 million
    (fcn8, {}, 134_489_759, 21.3),  # Long et al. 2015: 134 million
]
SMALL: list[tuple[Generator, dict[str, Any]]] = [
    (vgg, {"image": 32}),
    (vgg, {"image": 64, "norm": True}),
    (resnet_graph, {"image": 32, "depth": "18"}),
    (resnet_graph, {"image": 64, "norm": "in-place"}),
    (densenet, {"image": 32}),
    (densenet, {"image": 32, "features": "copied"}),
    (densenet, {"image": 32, "features": "copied", "norm": "saved"}),
    (densenet, {"image": 32, "norm": "saved"}),
    (inception, {"image": 75}),
    (mobilenet, {"image": 32}),
    (fcn8, {"image": 32}),
]


def listed_peak(made: dict[str, Any]) -> int:
    result = remat.solve(remat.load(made), algorithm="keep-all")
    assert result.makespan == pytest.approx(sum(task["time"] for task in made["tasks"]))
    return max(result.peak_memory.values()) - int(made["static_memory"])


@pytest.mark.parametrize(("generator", "parameters", "weights", "billions"), PUBLISHED)
def test_published_parameters_and_arithmetic(
    generator: Generator, parameters: dict[str, Any], weights: int, billions: float
) -> None:
    made = generator(batch=1, flops=1.0, bandwidth=1e300, **parameters)
    assert made["static_memory"] == 4 * weights
    gradients = [value["size"] for value in made["values"] if value["id"].startswith("dW.")]
    assert sum(gradients) == 4 * weights
    forward, backward = (
        sum(task["time"] for task in made["tasks"] if task["phase"] == phase and not task["id"].endswith(".again"))
        for phase in ("forward", "backward")
    )
    assert forward / 2e9 == pytest.approx(billions, rel=0.02)
    # Twice the forward, but for the gradient of the image.
    assert 1.9 <= backward / forward <= 2


@pytest.mark.parametrize(("generator", "parameters"), SMALL)
def test_keeping_everything_verifies(generator: Generator, parameters: dict[str, Any]) -> None:
    made = checked(generator(batch=2, **parameters))
    assert listed_peak(made) > 0
    assert set(generator(batch=2, keep_gradients=False, **parameters)["outputs"]) == {"loss"}


def test_vgg_activations_by_hand() -> None:
    made = vgg(batch=1)
    size = {value["id"]: value["size"] for value in made["values"]}
    convolutions = sum(size[name] for name in size if name.endswith(".relu") and name.startswith("conv")) // 4
    groups = [(2, 64, 224), (2, 128, 112), (3, 256, 56), (3, 512, 28), (3, 512, 14)]
    assert convolutions == sum(count * width * edge * edge for count, width, edge in groups) == 13_547_520
    assert size["pool5"] == 4 * 7 * 7 * 512
    assert size["pool5.indices"] == 8 * 7 * 7 * 512


def test_skips_of_an_fcn_by_hand() -> None:
    """Of 64 pixels, pools 3 to 5 have edges of 8, 4 and 2; the scores of 21 classes go up from 2 to 4, 8 and 64."""
    made = fcn8(batch=1, image=64)
    size = {value["id"]: value["size"] for value in made["values"]}
    edges = {"score": 2, "up4": 4, "score4": 4, "sum4": 4, "up3": 8, "score3": 8, "sum3": 8, "up": 64}
    assert {name: size[name] for name in edges} == {name: 4 * 21 * edge**2 for name, edge in edges.items()}
    tasks = {task["id"]: task for task in made["tasks"]}
    assert (tasks["score4"]["reads"], tasks["score3"]["reads"]) == (["pool4"], ["pool3"])
    assert tasks["sum3"]["reads"] == ["up3", "score3"]


def test_depthwise_convolutions_by_hand() -> None:
    """The second pair: 64 channels of 16 pixels become 128 of 8; 9 weights a channel, then 64 * 128."""
    made = mobilenet(batch=1, image=32, flops=1.0, bandwidth=1e300)
    size = {value["id"]: value["size"] for value in made["values"]}
    time = {task["id"]: task["time"] for task in made["tasks"]}
    assert size["2.depthwise.conv"] == 4 * 64 * 8 * 8
    assert size["2.pointwise.conv"] == 4 * 128 * 8 * 8
    assert size["dW.2.depthwise.conv"] == 4 * 9 * 64
    assert time["2.depthwise.conv"] == pytest.approx(2 * 9 * 64 * 8 * 8)
    assert time["2.pointwise.conv"] == pytest.approx(2 * 64 * 128 * 8 * 8)


def chain_of_units(norm: str, count: int) -> dict[str, Any]:
    """A chain of equal convolutions with norms."""
    kernels = ImageKernels(1, 4)
    x = kernels.image("x", 8, 16)
    source, operations = x.tensor, []
    for number in range(count):
        convolution, y = kernels.convolution(f"{number}.conv", x, 8, kernel=3)
        if norm == "plain":
            (first, y), name = kernels.norm(f"{number}.norm", y), f"{number}.relu"
            second, x = kernels.relu(name, y)
            operations += [convolution, first, second]
        else:
            activated, x = kernels.activated_norm(f"{number}.norm", y)
            operations += [convolution, activated]
    network = Network(operations, source, loss_size=4, element=4, name="units", what="Units")
    return training_graph(network, Device(1e12, 1e12), keep_gradients=False, in_place=True)


def test_norms_in_place_save_half() -> None:
    # Rota Bulo et al. 2018: of convolution, norm and rectifier one buffer is left of two.
    statistics = {"plain": 2 * 4 * 8, "in-place": 4 * 8}
    for norm, tensors in (("plain", 2), ("in-place", 1)):
        few, many = (listed_peak(chain_of_units(norm, count)) for count in (4, 9))
        assert many - few == 5 * (tensors * 4 * 8 * 16 * 16 + statistics[norm])


def test_copies_of_features_grow_with_the_square_of_the_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pleiss et al. 2017, figure 1 and section 3: shared storage and recomputed norms leave only features.
    def grown(**parameters: str) -> list[int]:
        found = []
        for layers in (8, 16, 24, 32):
            monkeypatch.setitem(DENSENET, "121", ((layers, 1, 1, 1), 32, 64))
            found.append(listed_peak(densenet(batch=1, keep_gradients=False, **parameters)))
        return found

    for features in ("shared", "copied"):
        first, second, third, fourth = grown(features=features, norm="saved")
        assert (fourth - third) > 1.15 * (third - second) > 1.15 * 1.15 * (second - first)
    first, second, third, fourth = grown(features="shared", norm="again")
    assert fourth - third == pytest.approx(third - second, rel=0.02)
    assert third - second == pytest.approx(second - first, rel=0.02)


def test_a_dense_layer_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DENSENET, "121", ((2, 1, 1, 1), 32, 64))
    tasks = {task["id"]: task for task in densenet(batch=1, image=32)["tasks"]}
    assert tasks["dense1_2.1.norm"]["reads"] == ["pool", "dense1_1.2.conv"]
    backward = tasks["dense1_2.1.conv.backward"]["reads"]
    assert backward == ["d.dense1_2.1.conv", "dense1_2.1.relu.again"]
    assert tasks["dense1_2.1.relu.again"] == {
        "id": "dense1_2.1.relu.again",
        "time": tasks["dense1_2.1.relu"]["time"],
        "reads": ["dense1_2.1.norm.again"],
        "writes": ["dense1_2.1.relu.again"],
        "in_place": True,
        "phase": "backward",
    }
    # The norm of the transition has written both gradients; this one adds to them in place.
    norm = tasks["dense1_2.1.norm.backward"]
    assert norm["in_place"]
    assert norm["reads"][-2:] == ["d.pool", "d.dense1_1.2.conv"]
    assert norm["writes"][:2] == ["d.pool.1", "d.dense1_1.2.conv.1"]


def test_gradients_of_residual_streams_are_added_in_place() -> None:
    tasks = {task["id"]: task for task in resnet_graph(batch=1, image=32, depth="18")["tasks"]}
    added = [task for name, task in tasks.items() if name.endswith(".sum") and task["phase"] == "backward"]
    assert len(added) == 8
    assert all(task["in_place"] and len(task["reads"]) == 2 for task in added)
    assert tasks["conv2_1.sum"]["in_place"]
    # No task overwrites the saved values of an in-place norm.
    kept = {task["id"]: task for task in resnet_graph(batch=1, image=32, depth="18", norm="in-place")["tasks"]}
    assert "in_place" not in kept["conv2_1.sum"]


def test_tensors_that_are_not_remade_are_read_as_they_are() -> None:
    made = densenet(batch=1, image=32, norm="saved")
    assert not [task for task in made["tasks"] if task["id"].endswith(".again")]
    assert Tensor("x", 3 * 4 * 32 * 32).size == next(v["size"] for v in made["values"] if v["id"] == "x")


@pytest.mark.parametrize(
    ("family", "parameters", "message"),
    [
        ("vgg", {"image": 100}, "image 100 is not a multiple of 32; take 96"),
        ("vgg", {"depth": "17"}, "depth must be one of 11, 13, 16, 19, not '17'"),
        ("resnet", {"image": 16}, "image must be at least 32, not 16"),
        ("densenet", {"features": "both"}, "features must be one of shared, copied, not 'both'"),
        ("densenet", {"norm": "never"}, "norm must be one of again, saved, not 'never'"),
        ("inception", {"image": 74}, "image must be at least 75, not 74"),
        ("mobilenet", {"image": 31}, "image must be at least 32, not 31"),
        ("fcn8", {"image": 100}, "image 100 is not a multiple of 32; take 96"),
        ("inception", {"batch": 10**13}, "make the batch or the network smaller"),
    ],
)
def test_bad_parameters_are_refused(family: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate("dag", family, **parameters)
