from __future__ import annotations

import json
from typing import Any

import pytest

from remat.generate.networks.resnet import BLOCKS, resnet
from tests import places

TRACE = places.INSTANCES / "chains" / "resnet50_b32_224.json"


def expanded(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [stage for stage in document["stages"] for _ in range(stage.get("repeat", 1))]


@pytest.mark.parametrize(
    ("depth", "giga_multiply_adds", "parameters"),
    [
        # The common implementations' own figures at 224 pixels.
        ("18", 1.814, 11_689_512),
        ("34", 3.664, 21_797_672),
        ("50", 4.089, 25_557_032),
        ("101", 7.801, 44_549_160),
        ("152", 11.514, 60_192_808),
    ],
)
def test_published_flops_and_parameters(depth: str, giga_multiply_adds: float, parameters: int) -> None:
    chain = resnet(depth=depth, batch=1, flops=1.0, bandwidth=1e300, optimizer="sgd")
    assert sum(s["forward_time"] for s in expanded(chain)) / 2e9 == pytest.approx(giga_multiply_adds, abs=6e-4)
    assert chain["static_memory"] == 2 * 4 * parameters


@pytest.mark.parametrize("depth", BLOCKS)
def test_one_stage_per_block_with_a_stem_and_a_classifier(depth: str) -> None:
    stages = expanded(resnet(depth=depth))
    assert len(stages) == 2 + sum(BLOCKS[depth])
    layers = 2 + sum(BLOCKS[depth]) * (3 if int(depth) >= 50 else 2)
    assert layers == int(depth)
    assert stages[0]["name"] == "stem"
    assert stages[-1]["output_size"] == 32 * 1000 * 4


def test_agrees_with_the_traced_model() -> None:
    trace = json.loads(TRACE.read_text())
    made = resnet(depth="50", batch=32, image=224)
    assert made["input_size"] == trace["input_size"]
    for stage, traced in zip(expanded(made), trace["stages"], strict=True):
        for key in ("output_size", "saved_size"):
            assert stage[key] == traced[key], (stage["name"], key)
        for key in ("saving_workspace", "backward_workspace"):
            assert stage[key] == pytest.approx(traced[key], rel=1e-4), (stage["name"], key)
        assert stage["forward_time"] == pytest.approx(traced["forward_time"], rel=1e-4)
    times = [sum(s["backward_time"] for s in stages) for stages in (expanded(made), trace["stages"])]
    assert times[0] == pytest.approx(times[1], rel=0.01)


def test_a_basic_block_by_hand() -> None:
    # Second group of ResNet-18 at batch 1, fp32: 64 channels at 56 pixels to 128 at 28.
    group = next(s for s in resnet(depth="18", batch=1, flops=1.0, bandwidth=1e300)["stages"] if s["name"] == "conv3_1")
    small = 4 * 128 * 28 * 28
    assert group["output_size"] == small
    # Outputs of the two convolutions and the downsampling one, the first rectified; three norms' statistics.
    assert group["saved_size"] == 4 * small + 3 * 2 * 4 * 128
    assert group["forward_time"] == 2 * 28 * 28 * 128 * (9 * 64 + 9 * 128 + 64)


def test_the_stem_needs_no_input_gradient() -> None:
    stem = resnet(batch=1, flops=1.0, bandwidth=1e300)["stages"][0]
    assert stem["backward_time"] == pytest.approx(stem["forward_time"])


def test_half_precision_halves_the_activations_but_not_the_statistics() -> None:
    single, half = (resnet(dtype=dtype)["stages"][1] for dtype in ("fp32", "fp16"))
    statistics = 2 * 4 * (64 + 64 + 256 + 256)
    assert half["output_size"] == single["output_size"] // 2
    assert half["saved_size"] - statistics == (single["saved_size"] - statistics) // 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": "51"}, "depth must be one of 18, 34, 50, 101, 152, not '51'"),
        ({"image": 8}, "image must be at least 32, not 8"),
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"classes": 0}, "classes must be at least 1, not 0"),
        ({"optimizer": "adam"}, "optimizer must be one of momentum, sgd, none, omitted"),
        ({"batch": 10**12}, "make the batch or the image smaller"),
    ],
)
def test_errors_name_parameter_figure_and_remedy(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resnet(**parameters)
