from __future__ import annotations

import json
from typing import Any

import pytest

from remat import load
from remat.generate.networks.transformer import PRESETS, Kernels, activation_bytes, transformer
from tests import places

TRACE = places.INSTANCES / "chains" / "gpt2s_b8_s1024_flash.json"


def block(**parameters: Any) -> dict[str, Any]:
    return next(s for s in transformer(**parameters)["stages"] if s["name"] == "block")


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("gpt2-small", 124_439_808),  # the released models' own counts
        ("gpt2-xl", 1_557_611_200),
        ("llama-7b-like", 6_738_415_616),
        ("bert-large", 334_090_240),  # 335 M without the pooler and the segment embeddings
    ],
)
def test_published_parameter_counts(preset: str, parameters: int) -> None:
    assert PRESETS[preset].parameters == parameters
    assert transformer(preset=preset)["static_memory"] == 16 * parameters


@pytest.mark.parametrize("preset", PRESETS)
def test_the_kernels_carry_the_parameters(preset: str) -> None:
    model = PRESETS[preset]
    kernels = Kernels(model, 1, 2, True)
    layer = sum(operation.weights for operation in [*kernels.attention(), *kernels.mlp()])
    ends = sum(operation.weights for operation in [*kernels.embedding(), *kernels.head()])
    shared = model.vocabulary * model.hidden if model.tied else 0
    assert (model.layers * layer + ends) // 2 - shared == model.parameters


@pytest.mark.parametrize(("batch", "sequence", "hidden", "heads"), [(1, 2048, 12288, 96), (4, 1024, 768, 12)])
@pytest.mark.parametrize("flash", [False, True])
def test_activations_of_a_layer_are_the_published_formula(
    batch: int, sequence: int, hidden: int, heads: int, flash: bool
) -> None:
    made = block(batch=batch, sequence=sequence, hidden=hidden, heads=heads, layers=3, dtype="fp16", flash=flash)
    layer_input = 2 * sequence * batch * hidden
    norms = 2 * 2 * 4 * sequence * batch  # mean and deviation of two norms, which the paper neglects
    rows = 4 * heads * sequence * batch if flash else 0  # FlashAttention's statistics
    expected = activation_bytes(batch=batch, sequence=sequence, hidden=hidden, heads=heads, flash=flash)
    assert made["saved_size"] + layer_input - norms - rows == expected
    assert made["output_size"] == layer_input


def test_gpt3_layer_by_hand() -> None:
    # 34*s*b*h + 5*a*s^2*b for s = 2048, b = 1, h = 12288, a = 96
    assert activation_bytes(batch=1, sequence=2048, hidden=12288, heads=96) == 855_638_016 + 2_013_265_920


@pytest.mark.parametrize(("layers", "hidden"), [(2, 512), (4, 1024)])
def test_flops_are_the_published_formula(layers: int, hidden: int) -> None:
    batch, sequence, vocabulary = 2, 256, 1000
    chain = transformer(
        layers=layers,
        hidden=hidden,
        heads=8,
        sequence=sequence,
        vocabulary=vocabulary,
        batch=batch,
        flash=False,
        flops=1.0,
        bandwidth=1e300,
    )
    _, layer, head = chain["stages"]
    flops = 24 * batch * sequence * hidden**2 + 4 * batch * sequence**2 * hidden
    assert layer["repeat"] == layers
    assert layer["forward_time"] == pytest.approx(flops)
    assert layer["backward_time"] == pytest.approx(2 * flops)
    assert head["forward_time"] == pytest.approx(2 * batch * sequence * hidden * vocabulary)


def test_tiled_attention_computes_its_scores_again_in_the_backward() -> None:
    made = block(layers=1, hidden=64, heads=4, sequence=32, batch=1, flops=1.0, bandwidth=1e300)
    attention = 4 * 32**2 * 64
    flops = 24 * 32 * 64**2 + attention
    assert made["backward_time"] == pytest.approx(2 * flops + attention / 2)


def test_a_slow_memory_makes_the_step_bound_by_traffic() -> None:
    fast, slow = (block(bandwidth=bandwidth)["forward_time"] for bandwidth in (1e300, 1e9))
    assert slow > 20 * fast


def test_agrees_with_the_traced_model() -> None:
    trace = json.loads(TRACE.read_text())
    made = transformer(dtype="fp32", dropout=False, batch=8, parameters="none")
    assert made["input_size"] == trace["input_size"]
    for stage, index in zip(made["stages"], (0, 1, 13), strict=True):
        traced = trace["stages"][index]
        for key in ("output_size", "saved_size", "forward_workspace", "saving_workspace", "backward_workspace"):
            assert stage[key] == traced[key], (stage["name"], key)
    layer, traced = made["stages"][1], trace["stages"][1]
    assert layer["forward_time"] == pytest.approx(traced["forward_time"])
    assert layer["backward_time"] == pytest.approx(traced["backward_time"], rel=0.03)


def test_sublayers_split_a_block_at_its_middle() -> None:
    whole = transformer(batch=2)
    split = transformer(batch=2, granularity="sublayer")
    names = [stage["name"] for stage in split["stages"]]
    assert names[:3] == ["embedding", "attention0", "mlp0"]
    assert names[-2:] == ["mlp11", "head"]
    attention, mlp, layer = split["stages"][1], split["stages"][2], whole["stages"][1]
    assert attention["output_size"] == mlp["output_size"] == layer["output_size"]
    # The block saves the stream between the two, which is now a stage's output.
    assert attention["saved_size"] + mlp["saved_size"] == layer["saved_size"] - layer["output_size"]
    for key in ("forward_time", "backward_time"):
        assert attention[key] + mlp[key] == pytest.approx(layer[key])


def test_dropout_and_precision_change_what_is_saved() -> None:
    shape = {"layers": 1, "hidden": 64, "heads": 4, "sequence": 16, "batch": 1, "flash": False}
    stream, scores, norms = 16 * 64, 4 * 16 * 16, 2 * 2 * 4 * 16
    assert block(**shape, dtype="fp16", dropout=False)["saved_size"] == 2 * 15 * stream + 2 * scores + norms
    assert block(**shape, dtype="fp32", dropout=False)["saved_size"] == 4 * 15 * stream + 4 * scores + norms
    assert block(**shape, dtype="fp32")["saved_size"] == (4 * 15 + 2) * stream + (2 * 4 + 1) * scores + norms


@pytest.mark.parametrize(
    ("optimizer", "dtype", "per_parameter"),
    [("adam", "bf16", 16), ("adam", "fp32", 16), ("sgd", "bf16", 4), ("sgd", "fp32", 8), ("none", "bf16", 4)],
)
def test_static_memory_counts_bytes_per_parameter(optimizer: str, dtype: str, per_parameter: int) -> None:
    made = transformer(optimizer=optimizer, dtype=dtype)
    assert made.get("static_memory", 0) == per_parameter * 124_439_808


def test_a_given_width_brings_its_own_feedforward() -> None:
    made = transformer(preset="llama-7b-like", hidden=512, heads=8, layers=2, sequence=64)
    layer = 4 * 512**2 + 3 * 512 * 2048 + 2 * 512
    assert made["static_memory"] == 16 * (2 * layer + 2 * 32000 * 512 + 512)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden": 770}, "hidden 770 is not a multiple of heads 12; give heads that divide it, or hidden 768"),
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"layers": 10**9}, "layers must be at most 1,000,000"),
        ({"batch": -1}, "batch must be at least 1, not -1"),
        ({"flops": 0}, "flops must be at least 1, not 0"),
        ({"bandwidth": float("nan")}, "bandwidth must be finite, not nan"),
        ({"dtype": "fp8"}, "dtype must be one of fp16, bf16, fp32, not 'fp8'"),
        ({"preset": "gpt2-smal"}, "did you mean 'gpt2-small'"),
        ({"batch": 10**13}, "make the batch, the sequence or the model smaller"),
    ],
)
def test_errors_name_parameter_figure_and_remedy(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        transformer(**parameters)


@pytest.mark.parametrize("granularity", ["block", "sublayer"])
@pytest.mark.parametrize(
    ("preset", "dtype", "optimizer", "state", "master"),
    [
        ("gpt2-small", "bf16", "adam", 12, True),
        ("llama-7b-like", "fp32", "adam", 8, False),
        ("bert-large", "fp16", "sgd", 0, False),
    ],
)
def test_parameters_as_values(
    granularity: str, preset: str, dtype: str, optimizer: str, state: int, master: bool
) -> None:
    made = transformer(
        preset=preset, dtype=dtype, optimizer=optimizer, granularity=granularity, parameters="host", batch=1
    )
    plain = transformer(preset=preset, dtype=dtype, optimizer=optimizer, granularity=granularity, batch=1)
    instance = load(made)
    element = 4 if dtype == "fp32" else 2
    expected = PRESETS[preset].parameters
    assert sum(stage.repeat * stage.parameter_size for stage in instance.stages) == element * expected
    assert sum(stage.repeat * stage.optimizer_size for stage in instance.stages) == state * expected
    # Parameters, gradients and optimizer states are what was static memory.
    gradients = sum(stage.repeat * stage.parameter_gradient_bytes for stage in instance.stages)
    assert gradients + (element + state) * expected == plain["static_memory"]
    assert (instance.static_memory, instance.master_copy, instance.parameter_memory) == (0, master, "host")
    assert [stage["forward_time"] for stage in made["stages"]] == [stage["forward_time"] for stage in plain["stages"]]


def test_parameters_need_a_link_and_a_slower_host() -> None:
    with pytest.raises(ValueError, match="at most 1"):
        transformer(parameters="device", host_speed=2)
    with pytest.raises(ValueError, match="link"):
        transformer(parameters="device", link=0)
