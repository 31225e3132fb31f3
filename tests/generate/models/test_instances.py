"""Instances of configured models: chains, task graphs and pipelines that hold together."""

from __future__ import annotations

from typing import Any

import pytest

import remat
from remat.generate import generate
from remat.generate.models.instances import workload
from remat.generate.models.memory import Training, estimate
from remat.generate.networks.transformer import PRESETS
from remat.solving.problem_setup import make_problem

TINY = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY |= {"intermediate_size": 160, "vocab_size": 1000, "max_position_embeddings": 512}


@pytest.mark.parametrize("name", ["gpt2", "deepseek-v2-lite", "t5-base", "whisper-small", "vit-base", "bart-base"])
def test_task_graphs_have_the_parameters_and_the_work_of_their_model(name: str) -> None:
    made = generate("dag", "model", config=name, batch=1, sequence=64)
    work = workload(config=name, batch=1, sequence=64)
    assert made["static_memory"] == 2 * work.model.parameters
    gradients = sum(row["size"] for row in made["values"] if row["id"].startswith("dW."))
    tied = 2 * work.model.vocabulary * work.model.hidden if work.model.tied else 0
    # A table that is used twice has two gradients.
    assert gradients == 2 * work.model.parameters + tied
    remat.load(made)


def test_a_chain_and_a_task_graph_take_equally_long() -> None:
    chain = generate("chain", "model", config="llama-3.2-1b", batch=1, sequence=256)
    graph = generate("dag", "model", config="llama-3.2-1b", batch=1, sequence=256)
    one = sum((row["forward_time"] + row["backward_time"]) * row.get("repeat", 1) for row in chain["stages"])
    assert one + chain["loss"]["time"] == pytest.approx(sum(task["time"] for task in graph["tasks"]), rel=1e-3)


def test_products_of_a_step_are_six_for_each_parameter_and_token() -> None:
    """Kaplan et al. 2020: 6 FLOP for each parameter of a product and token; attention comes on top."""
    options: dict[str, Any] = {"config": "llama-2-7b", "batch": 1, "sequence": 512, "bandwidth": 1e300}
    made = generate("chain", "model", flops=1, **options)
    spent = sum((row["forward_time"] + row["backward_time"]) * row.get("repeat", 1) for row in made["stages"])
    matrices = 6_738_415_616 - 32_000 * 4096 - 65 * 4096
    attention = 32 * 512**2 * 4096 * (4 + 8 + 2)  # forward, backward, and the scores again
    assert spent == 6 * 512 * matrices + attention


def test_the_generator_of_presets_and_a_configuration_agree() -> None:
    """Two descriptions of one block: the preset's kernels are coarser (one for queries, keys and values)."""
    preset = generate("chain", "transformer", preset="llama-7b-like", batch=1, sequence=2048, optimizer="none")
    config = generate("chain", "model", config="llama-2-7b", batch=1, sequence=2048, optimizer="none")
    assert preset["stages"][1]["saved_size"] == config["stages"][1]["saved_size"]
    assert preset["stages"][1]["repeat"] == config["stages"][1]["repeat"] == 32
    assert PRESETS["llama-7b-like"].parameters == 6_738_415_616


def test_adapters_halve_the_backward_of_products() -> None:
    options: dict[str, Any] = {"config": "llama-2-7b", "batch": 1, "sequence": 64, "bandwidth": 1e300, "flops": 1}
    plain = generate("chain", "model", **options)["stages"][1]
    first, tuned = generate("chain", "model", lora="rank=1", **options)["stages"][1:3]
    inner = plain["backward_time"] - plain["forward_time"]  # weights' gradients, and attention's own
    assert tuned["backward_time"] == pytest.approx(inner, rel=0.01)
    products = 3 * 2 * 64 * 4096**2  # no parameters before the first block are trained: its input has no gradient
    assert first["backward_time"] == pytest.approx(inner - products, rel=0.01)
    assert tuned["saved_size"] > plain["saved_size"]
    frozen = generate("chain", "model", lora="rank=1,q", **options)["stages"][2]
    assert frozen["saved_size"] < plain["saved_size"]


def test_a_pipeline_has_all_parameters_gradients_and_states() -> None:
    made = generate("pipeline", "model", config="llama-3.2-1b", sequence=128, lora="rank=8", quantize="nf4")
    loaded = remat.load(made)
    found = estimate(workload(config="llama-3.2-1b", sequence=128, lora="rank=8", quantize="nf4"), Training()).static
    layers = loaded.layers
    assert sum(layer.repeat * layer.parameter_size for layer in layers) == found.parameters
    assert sum(layer.repeat * layer.parameter_gradient_bytes for layer in layers) == found.gradients
    assert sum(layer.repeat * layer.optimizer_size for layer in layers) == found.states


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"config": "t5-base"}, "config: t5-base has an encoder and a decoder"),
        ({"config": "gpt2", "sequence": 2000}, "sequence 2,000 is longer than the 1,024 positions of gpt2"),
        ({"lora": "rank=0"}, "lora must be at least 1"),
        ({"lora": "q"}, "lora is a rank and targets"),
        ({"lora": "rank=4,nothing"}, "lora: 'nothing' is not a matrix of the blocks; these are q, k, v, o, up, down"),
        ({"frozen": "*"}, "every parameter is frozen"),
        ({"frozen": "encoder.*"}, "is not a parameter of the model"),
        ({"frozen": ","}, "frozen is patterns"),
        ({"quantize": "nf4"}, "give lora or frozen, too"),
        ({"device": "V100"}, "V100 has no rate for 'bf16'"),
        ({"loss_chunks": 0}, "loss_chunks must be at least 1"),
        ({"batch": 2**40, "sequence": 1024}, "make the batch, the sequence or the model smaller"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        generate("chain", "model", **options)
    assert said in str(caught.value)


def test_mixtures_compute_with_the_experts_that_tokens_use() -> None:
    options: dict[str, Any] = {"config": "mixtral-8x7b", "batch": 1, "sequence": 64, "bandwidth": 1e300, "flops": 1}
    block = generate("chain", "model", **options)["stages"][1]
    attention = 2 * 64 * (2 * 4096 * (4096 + 1024)) + 4 * 64**2 * 4096
    experts = 2 * 64 * (2 * 3 * 4096 * 14336 + 4096 * 8)
    assert block["forward_time"] == attention + experts


def test_latent_attention_reads_keys_and_values_that_were_unpacked() -> None:
    made = generate("dag", "model", config="deepseek-v2-lite", batch=1, sequence=64)
    sizes = {row["id"]: row["size"] for row in made["values"]}
    tokens, heads = 64, 16
    assert sizes["0.attention.kv_a"] == 2 * tokens * (512 + 64)
    assert sizes["0.attention.kv_b"] == 2 * tokens * heads * (128 + 128)
    assert sizes["0.attention.keys"] == 2 * tokens * heads * (128 + 64)
    assert sizes["1.mlp.gather"] == 2 * tokens * 6 * 2048


MODEL = {"config": "gpt2", "sequence": 64}


@pytest.mark.parametrize(("family", "options"), [("model", MODEL), ("transformer", {"layers": 2, "sequence": 64})])
@pytest.mark.parametrize("ranks", [{}, {"data": 4, "zero": 1}])
def test_what_stays_on_the_device_needs_no_host(family: str, options: dict[str, Any], ranks: dict[str, Any]) -> None:
    """No update on a CPU; a link adds a host for activations, which runs nothing either."""
    homes: dict[str, Any] = {"parameters": "device", "states": "device", **options, **ranks}
    for link in ({}, {"link": 10**9}):
        machine = make_problem(remat.load(generate("chain", family, **homes, **link))).machine
        assert [processor.name for processor in machine.processors] == ["gpu"]
        assert [memory.name for memory in machine.memories] == (["device", "host"] if link else ["device"])
    other = make_problem(remat.load(generate("chain", family, **homes | {"states": "host"}))).machine
    assert [processor.name for processor in other.processors] == ["gpu", "cpu"]


def test_a_host_that_updates_nothing_has_no_speed() -> None:
    with pytest.raises(ValueError, match="host_speed is that of updates at a host"):
        generate("chain", "model", **MODEL, states="device", host_speed=0.5)
