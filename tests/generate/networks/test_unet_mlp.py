from __future__ import annotations

import json
from typing import Any

import pytest

from remat.generate.networks.operations import Device
from remat.generate.networks.training import Network, training_graph
from remat.generate.networks.transformer import PRESETS, Kernels
from remat.generate.networks.unet_mlp import mlp, unet
from tests import places
from tests.generate.test_dag import check_structure

DAGS = places.INSTANCES / "dags"


def checked(made: dict[str, Any]) -> dict[str, Any]:
    """Check the structure of a graph with inputs, by letting a task write them."""
    check_structure(
        {**made, "tasks": [{"id": "inputs", "time": 0, "reads": [], "writes": made["inputs"]}, *made["tasks"]]}
    )
    assert set(made["outputs"]) <= {value["id"] for value in made["values"]}
    return made


def in_order_peak(made: dict[str, Any]) -> int:
    """Peak of the listed order, everything kept until its last use."""
    size = {value["id"]: value["size"] for value in made["values"]}
    first = dict.fromkeys(made.get("inputs", ()), 0)
    last: dict[str, int] = {}
    for position, task in enumerate(made["tasks"]):
        for value in task["writes"]:
            first.setdefault(value, position)
            last[value] = position
        last.update(dict.fromkeys(task["reads"], position))
    last.update(dict.fromkeys(made["outputs"], len(made["tasks"])))
    change = [0] * (len(made["tasks"]) + 2)
    for value, start in first.items():
        change[start] += size[value]
        change[last[value] + 1] -= size[value]
    held = most = made["static_memory"]
    for delta in change[: len(made["tasks"])]:
        held += delta
        most = max(most, held)
    return int(most)


def test_unet_has_the_published_layers() -> None:
    made = checked(unet())
    forward = [task["id"] for task in made["tasks"] if task["phase"] == "forward"]
    convolutions = [name for name in forward if name.endswith("conv") or name.startswith("up") or name == "head"]
    assert len(convolutions) == 23
    assert made["static_memory"] == 4 * 31_037_698  # 31 million


def test_unet_skips_live_from_encoder_to_decoder() -> None:
    made = unet(depth=2, channels=8, image=16, batch=1)
    reads = {task["id"]: task["reads"] for task in made["tasks"]}
    assert reads["join0"] == ["down0.2.relu", "up0"]
    assert reads["join1"] == ["down1.2.relu", "up1"]
    # A skip's gradient comes from the pool and from the joint.
    assert reads["down0.2.relu.accumulate"] == ["d.down0.2.relu", "d.down0.2.relu.1"]


def test_unet_agrees_with_the_traced_graph() -> None:
    trace = json.loads((DAGS / "unet_joint.json").read_text())
    made = unet()
    times = [sum(task["time"] for task in document["tasks"]) for document in (made, trace)]
    assert times[0] == pytest.approx(times[1], rel=0.01)
    assert in_order_peak(made) == pytest.approx(in_order_peak(trace), rel=0.01)


def test_mlp_agrees_with_the_traced_graph() -> None:
    trace = json.loads((DAGS / "mlp12_joint.json").read_text())
    made = checked(mlp())
    times = [sum(task["time"] for task in document["tasks"]) for document in (made, trace)]
    assert times[0] == pytest.approx(times[1], rel=0.02)
    assert in_order_peak(made) == pytest.approx(in_order_peak(trace), rel=0.02)


def test_mlp_by_hand() -> None:
    made = mlp(layers=2, width=4, batch=3, dropout=False, flops=1.0, bandwidth=1e300)
    assert [task["id"] for task in made["tasks"]] == [
        "linear1",
        "tanh1",
        "linear2",
        "tanh2",
        "loss",
        "loss.backward",
        "tanh2.backward",
        "linear2.backward",
        "tanh1.backward",
        "linear1.backward",
    ]
    tasks = {task["id"]: task for task in made["tasks"]}
    assert tasks["linear2.backward"]["reads"] == ["d.linear2", "tanh1"]
    assert tasks["linear2.backward"]["writes"] == ["d.tanh1", "dW.linear2"]
    assert tasks["linear1.backward"]["writes"] == ["dW.linear1"]  # the input needs no gradient
    assert [tasks[name]["time"] for name in ("linear1", "linear2.backward", "linear1.backward")] == [96, 192, 96]
    assert made["static_memory"] == 2 * 4 * (4 * 4 + 4)
    assert made["outputs"] == ["loss", "dW.linear2", "dW.linear1"]


def test_gradients_pass_through_residual_sums() -> None:
    kernels = Kernels(PRESETS["gpt2-small"], batch=1, element=2, flash=True)
    operations = [*kernels.attention(), *kernels.mlp()]
    made = checked(
        training_graph(
            Network(operations, operations[0].reads[0], loss_size=8, element=2, name="block", what="One block"),
            Device(flops=1e12, bandwidth=1e12),
            keep_gradients=True,
        )
    )
    tasks = {task["id"]: task for task in made["tasks"]}
    assert "residual2.backward" not in tasks
    assert tasks["dropout.mask2.backward"]["reads"] == ["d.y", "mask2"]
    assert tasks["middle.accumulate"]["reads"] == ["d.y", "d.middle.1"]


def test_gradients_may_be_consumed_at_once() -> None:
    assert unet(keep_gradients=False)["outputs"] == ["loss"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"image": 100}, "image 100 is not a multiple of 2.depth = 16; take 96, or a smaller depth"),
        ({"depth": 0}, "depth must be at least 1, not 0"),
        ({"depth": 13}, "depth must be at most 12, not 13"),
        ({"dtype": "int8"}, "dtype must be one of fp16, bf16, fp32, not 'int8'"),
        ({"batch": 10**13}, "make the batch or the network smaller"),
    ],
)
def test_errors_of_unet(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unet(**parameters)


def test_errors_of_mlp() -> None:
    with pytest.raises(ValueError, match="layers must be at most 20,000, not 100000"):
        mlp(layers=100_000)
    with pytest.raises(ValueError, match="width must be at least 1, not 0"):
        mlp(width=0)
