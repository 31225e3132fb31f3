"""Configurations of published models: parameters as published, and one line for each kind of broken file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remat.errors import InstanceError
from remat.generate.models.reading import FAMILIES, read_model, shipped

PUBLISHED = {
    "gpt2": 124_439_808,
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-1b": 999_885_952,
    "gpt-neox-20b": 20_554_567_680,
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "bert-base": 109_514_298,
    "bert-large": 335_141_888,
    "roberta-base": 124_697_433,
    "modernbert-base": 149_655_232,
    "t5-base": 222_903_552,
    "bart-base": 139_420_416,
    "whisper-small": 241_734_912,
    "vit-base": 86_567_656,
}


@pytest.mark.parametrize("name", shipped())
def test_parameters_are_the_published_ones(name: str) -> None:
    assert read_model(name).parameters == PUBLISHED[name]


def test_every_family_has_a_published_model() -> None:
    assert {fields["model_type"] for fields in shipped().values()} == {*FAMILIES}


@pytest.mark.parametrize(
    ("name", "changes", "published"),
    [
        ("bert-base", {"architectures": ["BertModel"]}, 109_482_240),
        ("roberta-base", {"architectures": ["RobertaModel"]}, 124_645_632),
        ("vit-base", {"architectures": ["ViTModel"]}, 86_389_248),
        # Flan-T5: gated, with an untied head
        (
            "t5-base",
            {"feed_forward_proj": "gated-gelu", "d_ff": 2048, "tie_word_embeddings": False},
            247_577_856,
        ),
        ("t5-base", {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8}, 60_506_624),
        (
            "whisper-small",
            {"d_model": 384, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}
            | {
                f"{side}_{key}": number
                for side in ("encoder", "decoder")
                for key, number in (("layers", 4), ("attention_heads", 6))
            },
            37_760_640,
        ),
        ("modernbert-base", {"architectures": ["ModernBertModel"]}, 149_014_272),
    ],
)
def test_variants_have_the_published_parameters(name: str, changes: dict[str, Any], published: int) -> None:
    assert read_model(shipped()[name] | changes).parameters == published


def test_a_vocabulary_that_is_padded_counts_as_it_is_stored() -> None:
    plain = shipped()["llama-3.2-1b"]
    assert read_model(plain | {"vocab_size": 128_320}).parameters - read_model(plain).parameters == 64 * 2048


def test_tied_tables_count_once() -> None:
    untied = read_model(shipped()["llama-3.2-1b"] | {"tie_word_embeddings": False})
    assert untied.parameters - PUBLISHED["llama-3.2-1b"] == 128_256 * 2048


def test_the_text_model_of_a_model_of_several_kinds_is_counted() -> None:
    outer = {"model_type": "gemma3", "text_config": shipped()["gemma-3-1b"], "vision_config": {}}
    model = read_model(outer)
    assert model.parameters == PUBLISHED["gemma-3-1b"]
    assert model.notes == ("only the text model of the configuration is counted",)


def test_windows_alternate_as_the_configuration_says() -> None:
    two, three = read_model("gemma-2-2b"), read_model("gemma-3-1b")
    windows = [[block.attention.window for block in model.decoder.blocks] for model in (two, three)]
    assert windows[0][:3] == [4096, None, 4096]
    assert windows[1][:7] == [512] * 5 + [None, 512]
    listed = read_model(shipped()["gemma-3-1b"] | {"layer_types": ["full_attention", "sliding_attention"] * 13})
    assert [block.attention.window for block in listed.decoder.blocks][:3] == [None, 512, None]


LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA |= {"intermediate_size": 128, "vocab_size": 100}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "rwkv"}, "$.model_type: the configuration: expected one of llama, "),
        ({"model_type": None}, "$.model_type"),
        (
            {"hidden_size": "wide"},
            "$.hidden_size: the configuration: expected a whole number from 1 to 2^31, not 'wide'",
        ),
        ({"hidden_size": True}, "$.hidden_size"),
        ({"hidden_size": 0}, "$.hidden_size"),
        ({"hidden_size": 10**40}, "not a number of more than 30 digits"),
        ({"vocab_size": None}, "$.vocab_size: the configuration: expected a whole number: the key is missing"),
        ({"num_hidden_layers": 10**6}, "at most 10000 layers"),
        ({"num_key_value_heads": 3}, "$.num_key_value_heads: the configuration: 3 heads of keys do not divide the 4"),
        (
            {"num_attention_heads": 5},
            "$.num_attention_heads: the configuration: 5 heads do not divide the hidden size 64",
        ),
        ({"tie_word_embeddings": "yes"}, "$.tie_word_embeddings: the configuration: expected true or false, not 'yes'"),
        ({"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}, "$.num_experts_per_tok"),
        ({"model_type": "bert", "hidden_dropout_prob": 2}, "$.hidden_dropout_prob"),
        ({"model_type": "bert", "hidden_dropout_prob": 10**400}, "$.hidden_dropout_prob"),
        ({"model_type": "bert", "architectures": 3}, "$.architectures"),
        (
            {"model_type": "vit", "image_size": 100},
            "$.patch_size: the configuration: patches of 16 pixels do not divide",
        ),
        ({"model_type": "whisper"}, "$.encoder_layers"),
        ({"model_type": "qwen2_moe", "moe_intermediate_size": 3, "num_experts": 4, "mlp_only_layers": 3}, "mlp_only"),
    ],
)
def test_a_broken_field_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InstanceError) as caught:
        read_model(LLAMA | change)
    assert said in str(caught.value)
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"model_type": "llama", "model_type": "llama"}', "3", "\x00"])
def test_a_broken_file_is_named(tmp_path: Any, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InstanceError) as caught:
        read_model(str(path))
    assert "config.json" in str(caught.value)


def test_a_file_and_its_fields_are_one_model(tmp_path: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"rms_norm_eps": 1e-5, "rope_scaling": {"factor": 8.0}}))
    assert read_model(str(path)) == read_model(LLAMA)
    with pytest.raises(InstanceError, match=r"no shipped configuration .*; shipped are gpt2"):
        read_model(str(tmp_path / "missing.json"))
