"""The `config.json` of a Hugging Face model becomes a `Model`: one function per family."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from remat.documents import read_document
from remat.errors import InstanceError
from remat.generate.models.architecture import (
    Attention,
    Block,
    Experts,
    Feedforward,
    Model,
    Stack,
    Weight,
    table,
    vector,
)
from remat.messages import brief, listing

LARGEST = 2**31
MOST_LAYERS = 10_000


class Config:
    """Fields of a configuration, with the file and the key in every complaint."""

    def __init__(self, fields: Mapping[str, Any], source: str) -> None:
        self.fields, self.source = fields, source

    def integer(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number under the first of the names that is there."""
        for name in names:
            found = self.fields.get(name)
            if found is None:
                continue
            if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= LARGEST:
                raise self.error(f"expected a whole number from {least} to 2^31, not {brief(found)}", name)
            return found
        if default is None:
            raise self.error(f"expected a whole number: the key is missing (model_type {self.family!r})", names[0])
        return default

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        found = self.fields.get(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self.error(f"expected true or false, not {brief(found)}", name)
        return found

    def text(self, name: str, default: str) -> str:
        """Return a text."""
        found = self.fields.get(name)
        if found is None:
            return default
        if not isinstance(found, str):
            raise self.error(f"expected a text, not {brief(found)}", name)
        return found

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; empty where there is none."""
        found = self.fields.get(name) or []
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self.error(f"expected a list of texts, not {brief(found)}", name)
        return found

    def dropped(self, *names: str, default: float = 0.0) -> bool:
        """Whether any of these probabilities is above 0."""
        for name in names:
            found = self.fields.get(name, default)
            if found is not None:
                try:
                    if not 0 <= float(found) < 1:
                        raise ValueError
                except (TypeError, ValueError, OverflowError):
                    raise self.error(f"expected a probability, not {brief(found)}", name) from None
                if float(found) > 0:
                    return True
        return False

    def error(self, message: str, name: str) -> InstanceError:
        """Return the complaint about a key."""
        return InstanceError(f"{self.source}: {message}", f"$.{name}")

    @property
    def family(self) -> str:
        """The `model_type`."""
        return self.text("model_type", "")

    @property
    def layers(self) -> int:
        """Number of blocks."""
        found = self.integer("num_hidden_layers", "n_layer", "num_layers")
        if found > MOST_LAYERS:
            raise self.error(f"expected at most {MOST_LAYERS} layers, not {found:,}", "num_hidden_layers")
        return found

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
        return self.integer("hidden_size", "n_embd", "d_model")


@cache
def shipped() -> dict[str, Any]:
    """Return the shipped configurations by name."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "configs.json").read_text())
    return found


def read_model(source: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None) -> Model:
    """Read a model.

    Parameters
    ----------
    source : str, path or mapping
        A `config.json` (``-`` is standard input), its fields, or the name of a shipped configuration.
    name : str, optional
        Default: that of the configuration, or its family.

    Raises
    ------
    InstanceError
        For a file that is not such a configuration, an unknown family, or a field out of range; the message has
        the file and the key.
    """
    if isinstance(source, Mapping):
        return model_of(Config(source, "the configuration"), name)
    text = os.fspath(source)
    if text in shipped():
        return model_of(Config(shipped()[text], text), name or text)
    try:
        document = read_document(text, "machine")
    except InstanceError as error:
        if text != "-" and not os.path.lexists(text):
            known = listing(shipped())
            raise InstanceError(
                f"there is no file and no shipped configuration {text!r}; shipped are {known}"
            ) from None
        raise error from None
    if not isinstance(document, dict):
        raise InstanceError(f"{text}: expected the fields of a model, not {brief(document)}", "$")
    return model_of(Config(document, text), name)


def model_of(config: Config, name: str | None = None) -> Model:
    """Return the model of a configuration."""
    notes: tuple[str, ...] = ()
    inner = config.fields.get("text_config")
    if config.family not in FAMILIES and isinstance(inner, Mapping):
        notes = ("only the text model of the configuration is counted",)
        config = Config({"tie_word_embeddings": config.fields.get("tie_word_embeddings"), **inner}, config.source)
    family = config.family
    if family not in FAMILIES:
        raise config.error(f"expected one of {', '.join(FAMILIES)}, not {brief(family)}", "model_type")
    made = FAMILIES[family](config)
    called = name or os.path.basename(config.text("_name_or_path", "")) or family
    return Model(
        name=called,
        family=family,
        notes=(*notes, *made.pop("notes", ())),
        hidden=made.pop("hidden", config.hidden),
        **made,
    )


# --- decoders ---------------------------------------------------------------------------------------------------------


def _heads(config: Config, *, biases: str = "", width: int | None = None, **more: Any) -> Attention:
    """Return attention with grouped queries, as most decoders have it."""
    heads = config.integer("num_attention_heads", "n_head")
    shared = config.integer("num_key_value_heads", default=heads)
    if heads % shared:
        raise config.error(f"{shared} heads of keys do not divide the {heads} heads", "num_key_value_heads")
    wide = config.integer("head_dim", default=width or config.hidden // heads)
    if width is None and config.fields.get("head_dim") is None and config.hidden % heads:
        raise config.error(f"{heads} heads do not divide the hidden size {config.hidden}", "num_attention_heads")
    return Attention(heads=heads, key_heads=shared, width=wide, value_width=wide, biases=biases, **more)


def _decoder(config: Config, blocks: list[Block], *, tied: bool, norm: int = 1, **more: Any) -> dict[str, Any]:
    """Return the fields of a model with rotary or no positions, whose head has the table's shape."""
    hidden, vocabulary = config.hidden, config.integer("vocab_size")
    tied = config.flag("tie_word_embeddings", tied)
    head_bias = vocabulary if more.pop("head_bias", False) else 0
    head = () if tied else (("head", Weight(hidden, vocabulary, biases=head_bias, linear=False)),)
    extra = more.pop("embeddings", ())
    stack = Stack(
        blocks=tuple(blocks),
        embeddings=(("embedding", table(vocabulary, hidden)), *extra),
        last_norm=norm,
        dropout=more.pop("dropout", False),
    )
    return {
        "vocabulary": vocabulary,
        "decoder": stack,
        "positions": config.integer("max_position_embeddings", "n_positions", default=0, least=0),
        "tied": tied,
        "head": head,
        **more,
    }


def _window(config: Config) -> int | None:
    return config.integer("sliding_window", default=0, least=0) or None


def _llama(config: Config) -> dict[str, Any]:
    biases = "qkvo" if config.flag("attention_bias", False) else ""
    mlp = Feedforward(inner=config.integer("intermediate_size"), biases=config.flag("mlp_bias", False))
    window = _window(config) if config.family in ("mistral", "phi3") else None
    one = config.family == "phi3"  # its products are merged, and its rotation concatenates
    heads = _heads(config, biases=biases, window=window, merged=one, head_major=one)
    return _decoder(config, [Block(attention=heads, transform=mlp)] * config.layers, tied=False)


def _qwen(config: Config) -> dict[str, Any]:
    third = config.family == "qwen3"
    every = config.flag("attention_bias", False)
    biases = ("qkvo" if every else "") if third else "qkv"
    window = _window(config) if config.flag("use_sliding_window", False) else None
    first = config.integer("max_window_layers", default=config.layers, least=0)
    mlp = Feedforward(inner=config.integer("intermediate_size"))
    blocks = [
        Block(
            attention=_heads(
                config,
                biases=biases,
                query_norm=third,
                width=128 if third else None,
                window=window if k >= first else None,
            ),
            transform=mlp,
        )
        for k in range(config.layers)
    ]
    return _decoder(config, blocks, tied=False)


def _gemma(config: Config) -> dict[str, Any]:
    later, third = config.family != "gemma", config.family == "gemma3_text"
    window = _window(config) if later else None
    period = config.integer("sliding_window_pattern", default=6 if third else 2)
    kinds = config.texts("layer_types")
    mlp = Feedforward(inner=config.integer("intermediate_size"))
    blocks = []
    for k in range(config.layers):
        local = kinds[k] == "sliding_attention" if k < len(kinds) else (k + 1) % period != 0
        heads = _heads(config, width=256, query_norm=third, window=window if local else None)
        blocks.append(Block(attention=heads, transform=mlp, order="sandwich" if later else "pre"))
    return _decoder(config, blocks, tied=True)


def _phi(config: Config) -> dict[str, Any]:
    mlp = Feedforward(inner=config.integer("intermediate_size"), gated=False, biases=True)
    dropout = config.dropped("resid_pdrop")
    heads = _heads(config, biases="qkvo", head_major=True)
    block = Block(attention=heads, transform=mlp, norm=2, order="shared", dropout=dropout)
    return _decoder(config, [block] * config.layers, tied=False, norm=2, head_bias=True)


def _gpt_neox(config: Config) -> dict[str, Any]:
    mlp = Feedforward(inner=config.integer("intermediate_size"), gated=False, biases=True)
    order = "parallel" if config.flag("use_parallel_residual", True) else "pre"
    biases = "qkvo" if config.flag("attention_bias", True) else ""
    dropout = config.dropped("hidden_dropout")
    heads = _heads(config, biases=biases, merged=True, head_major=True)
    block = Block(attention=heads, transform=mlp, norm=2, order=order, dropout=dropout)
    return _decoder(config, [block] * config.layers, tied=False, norm=2)


def _gpt2(config: Config) -> dict[str, Any]:
    mlp = Feedforward(inner=config.integer("n_inner", default=4 * config.hidden), gated=False, biases=True)
    dropout = config.dropped("resid_pdrop", default=0.1)
    block = Block(attention=_heads(config, biases="qkvo", rotary=False), transform=mlp, norm=2, dropout=dropout)
    positions = ("positions", table(config.integer("n_positions"), config.hidden))
    return _decoder(
        config,
        [block] * config.layers,
        tied=True,
        norm=2,
        embeddings=(positions,),
        dropout=config.dropped("embd_pdrop"),
    )


def _mixtral(config: Config) -> dict[str, Any]:
    mlp = _chosen(config, "num_local_experts", config.integer("intermediate_size"))
    block = Block(attention=_heads(config, window=_window(config)), transform=mlp)
    return _decoder(config, [block] * config.layers, tied=False)


def _chosen(config: Config, key: str, inner: int, **more: Any) -> Experts:
    count, chosen = config.integer(key), config.integer("num_experts_per_tok", default=2)
    if chosen > count:
        raise config.error(f"{chosen} experts per token are more than the {count} experts", "num_experts_per_tok")
    return Experts(count=count, chosen=chosen, inner=inner, **more)


def _qwen_moe(config: Config) -> dict[str, Any]:
    third = config.family == "qwen3_moe"
    every = config.flag("attention_bias", False)
    biases = ("qkvo" if every else "") if third else ("qkv" if config.flag("qkv_bias", True) else "")
    heads = _heads(config, biases=biases, query_norm=third, width=128 if third else None)
    shared = 0 if third else config.integer("shared_expert_intermediate_size", default=0, least=0)
    inner = config.integer("moe_intermediate_size")
    experts = _chosen(config, "num_experts", inner, shared=shared, shared_gate=shared > 0)
    step = config.integer("decoder_sparse_step", default=1)
    dense = config.fields.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise config.error(f"expected a list of layers, not {brief(dense)}", "mlp_only_layers")
    blocks = []
    for k in range(config.layers):
        sparse = k not in dense and (k + 1) % step == 0
        mlp = experts if sparse else Feedforward(inner=config.integer("intermediate_size"))
        blocks.append(Block(attention=heads, transform=mlp))
    return _decoder(config, blocks, tied=False)


def _deepseek(config: Config) -> dict[str, Any]:
    heads = config.integer("num_attention_heads")
    rope, plain = config.integer("qk_rope_head_dim"), config.integer("qk_nope_head_dim")
    attention = Attention(
        heads=heads,
        key_heads=heads,
        width=rope + plain,
        value_width=config.integer("v_head_dim"),
        query_rank=config.integer("q_lora_rank", default=0, least=0),
        key_rank=config.integer("kv_lora_rank"),
        rope=rope,
    )
    inner = config.integer("moe_intermediate_size")
    shared = inner * config.integer("n_shared_experts", default=0, least=0)
    corrected = config.family == "deepseek_v3"
    experts = _chosen(config, "n_routed_experts", inner, shared=shared, router_biases=corrected, router_copies=True)
    dense = Feedforward(inner=config.integer("intermediate_size"))
    first = config.integer("first_k_dense_replace", default=0, least=0)
    step = config.integer("moe_layer_freq", default=1)
    blocks = [
        Block(attention=attention, transform=experts if k >= first and k % step == 0 else dense)
        for k in range(config.layers)
    ]
    extra = config.integer("num_nextn_predict_layers", default=0, least=0)
    notes = ("the layers that predict further tokens (num_nextn_predict_layers) are left out",) if extra else ()
    return _decoder(config, blocks, tied=False, notes=notes)


# --- encoders ---------------------------------------------------------------------------------------------------------


def _outputs(config: Config, hidden: int, vocabulary: int, transform: tuple[tuple[str, Weight], ...]) -> dict[str, Any]:
    """Return the head that `architectures` names: of masked words, of classes, or a pooler."""
    named = config.texts("architectures")
    kind = named[0] if named else ""
    if kind.endswith(("ForMaskedLM", "ForPreTraining")):
        tied = config.flag("tie_word_embeddings", True)
        last = ("decoder", Weight(0 if tied else hidden, vocabulary, biases=vocabulary, linear=False))
        return {"vocabulary": vocabulary, "tied": tied, "head": (*transform, last)}
    classes = _labels(config) if kind.endswith("Classification") else 0
    head: list[tuple[str, Weight]] = []
    if config.family != "modernbert":
        head.append(("pooler", Weight(hidden, hidden, biases=hidden, linear=False)))
    if classes:
        head.append(("classifier", Weight(hidden, classes, biases=classes, linear=False)))
    return {"vocabulary": 0, "classes": classes or hidden, "head": tuple(head)}


def _labels(config: Config) -> int:
    found = config.fields.get("id2label")
    return len(found) if isinstance(found, Mapping) and found else config.integer("num_labels", default=2)


def _bert(config: Config) -> dict[str, Any]:
    hidden, vocabulary = config.hidden, config.integer("vocab_size")
    heads = _heads(config, biases="qkvo", rotary=False)
    mlp = Feedforward(inner=config.integer("intermediate_size"), gated=False, biases=True)
    dropout = config.dropped("hidden_dropout_prob", default=0.1)
    block = Block(attention=heads, transform=mlp, norm=2, order="post", dropout=dropout)
    positions = config.integer("max_position_embeddings", default=512)
    tables = (
        ("embedding", table(vocabulary, hidden)),
        ("positions", table(positions, hidden)),
        ("types", table(config.integer("type_vocab_size", default=2), hidden)),
    )
    stack = Stack(blocks=(block,) * config.layers, embeddings=tables, embedding_norm=2, last_norm=0, dropout=dropout)
    transform = (
        ("transform", Weight(hidden, hidden, biases=hidden, linear=False)),
        ("transform_norm", vector(2 * hidden)),
    )
    reserved = 2 if config.family == "roberta" else 0
    return {"decoder": stack, "positions": positions - reserved, **_outputs(config, hidden, vocabulary, transform)}


def _modernbert(config: Config) -> dict[str, Any]:
    hidden, vocabulary = config.hidden, config.integer("vocab_size")
    mlp = Feedforward(inner=config.integer("intermediate_size"), biases=config.flag("mlp_bias", False))
    every = config.integer("global_attn_every_n_layers", default=3)
    local = config.integer("local_attention", default=128)
    biases = "qkvo" if config.flag("attention_bias", False) else ""
    norm = 2 if config.flag("norm_bias", False) else 1
    blocks = [
        Block(
            attention=_heads(config, biases=biases, window=None if k % every == 0 else local, merged=True),
            transform=mlp,
            norm=norm,
            first_norm=k > 0,
            dropout=config.dropped("mlp_dropout"),
        )
        for k in range(config.layers)
    ]
    stack = Stack(
        blocks=tuple(blocks),
        embeddings=(("embedding", table(vocabulary, hidden)),),
        embedding_norm=norm,
        last_norm=norm,
        dropout=config.dropped("embedding_dropout"),
    )
    plain = hidden if config.flag("classifier_bias", False) else 0
    transform = (
        ("transform", Weight(hidden, hidden, biases=plain, linear=False)),
        ("transform_norm", vector(norm * hidden)),
    )
    positions = config.integer("max_position_embeddings", default=8192)
    made = _outputs(config, hidden, vocabulary, transform)
    if not made["vocabulary"] and config.texts("architectures")[:1] not in ([], ["ModernBertModel"]):
        made["head"] = (*transform, *made["head"])
    return {"decoder": stack, "positions": positions, **made}


def _vit(config: Config) -> dict[str, Any]:
    hidden, patch = config.hidden, config.integer("patch_size", default=16)
    channels, image = config.integer("num_channels", default=3), config.integer("image_size", default=224)
    if image % patch:
        raise config.error(f"patches of {patch} pixels do not divide the image of {image}", "patch_size")
    length = (image // patch) ** 2 + 1
    biases = "qkvo" if config.flag("qkv_bias", True) else "o"
    heads = _heads(config, biases=biases, rotary=False)
    mlp = Feedforward(inner=config.integer("intermediate_size"), gated=False, biases=True)
    block = Block(attention=heads, transform=mlp, norm=2, dropout=config.dropped("hidden_dropout_prob"))
    embeddings = (
        ("patches", Weight(channels * patch**2, hidden, biases=hidden, linear=False)),
        ("class", vector(hidden)),
        ("positions", table(length, hidden)),
    )
    stack = Stack(blocks=(block,) * config.layers, embeddings=embeddings, kind="patches", length=length, last_norm=2)
    kind = (config.texts("architectures") or [""])[0]
    classes = 0 if kind == "ViTModel" else _labels(config)
    last = ("pooler", Weight(hidden, hidden, biases=hidden, linear=False))
    if classes:
        last = ("classifier", Weight(hidden, classes, biases=classes, linear=False))
    return {"vocabulary": 0, "classes": classes or hidden, "decoder": stack, "head": (last,), "positions": length}


# --- encoders with decoders -------------------------------------------------------------------------------------------


def _t5(config: Config) -> dict[str, Any]:
    hidden, vocabulary = config.hidden, config.integer("vocab_size")
    heads, width = config.integer("num_heads"), config.integer("d_kv")
    buckets = config.integer("relative_attention_num_buckets", default=32)
    projection = config.text("feed_forward_proj", "relu")
    mlp = Feedforward(inner=config.integer("d_ff"), gated=projection.startswith("gated"))
    dropout = config.dropped("dropout_rate", default=0.1)

    def blocks(count: int, *, cross: bool) -> tuple[Block, ...]:
        plain = Attention(heads=heads, key_heads=heads, width=width, value_width=width, rotary=False)
        listed = []
        for k in range(count):
            own = replace(plain, buckets=0 if k else buckets, biased=True)
            listed.append(Block(attention=own, transform=mlp, cross=plain if cross else None, dropout=dropout))
        return tuple(listed)

    tied = config.flag("tie_word_embeddings", True)
    encoder = Stack(
        blocks=blocks(config.layers, cross=False),
        embeddings=(("embedding", table(vocabulary, hidden)),),
        dropout=dropout,
    )
    count = config.integer("num_decoder_layers", default=config.layers)
    decoder = Stack(blocks=blocks(count, cross=True), embeddings=(), dropout=dropout)
    head = () if tied else (("head", Weight(hidden, vocabulary, linear=False)),)
    return {"vocabulary": vocabulary, "encoder": encoder, "decoder": decoder, "tied": tied, "head": head}


def _side(config: Config, side: str, *, biases: str, order: str, dropout: bool) -> tuple[Block, ...]:
    """Return the encoder's or the decoder's blocks of BART or Whisper."""
    count = config.integer(f"{side}_layers")
    if count > MOST_LAYERS:
        raise config.error(f"expected at most {MOST_LAYERS} layers, not {count:,}", f"{side}_layers")
    heads = config.integer(f"{side}_attention_heads")
    if config.hidden % heads:
        raise config.error(f"{heads} heads do not divide d_model {config.hidden}", f"{side}_attention_heads")
    width = config.hidden // heads
    copied = config.family == "whisper"
    attention = Attention(
        heads=heads,
        key_heads=heads,
        width=width,
        value_width=width,
        biases=biases,
        rotary=False,
        head_major=copied,
    )
    mlp = Feedforward(inner=config.integer(f"{side}_ffn_dim"), gated=False, biases=True)
    cross = attention if side == "decoder" else None
    return (Block(attention=attention, transform=mlp, norm=2, order=order, cross=cross, dropout=dropout),) * count


def _bart(config: Config) -> dict[str, Any]:
    hidden, vocabulary = config.hidden, config.integer("vocab_size")
    dropout = config.dropped("dropout", default=0.1)
    positions = config.integer("max_position_embeddings", default=1024)
    places = ("positions", table(positions + 2, hidden))  # two rows are reserved
    both: dict[str, Any] = {"biases": "qkvo", "order": "post", "dropout": dropout}
    encoder = Stack(
        blocks=_side(config, "encoder", **both),
        embeddings=(("embedding", table(vocabulary, hidden)), places),
        embedding_norm=2,
        last_norm=0,
        dropout=dropout,
    )
    decoder = Stack(
        blocks=_side(config, "decoder", **both), embeddings=(places,), embedding_norm=2, last_norm=0, dropout=dropout
    )
    tied = config.flag("tie_word_embeddings", True)
    head = () if tied else (("head", Weight(hidden, vocabulary, linear=False)),)
    made = {"vocabulary": vocabulary, "encoder": encoder, "decoder": decoder, "tied": tied, "head": head}
    return {**made, "positions": positions}


def _whisper(config: Config) -> dict[str, Any]:
    hidden, vocabulary = config.hidden, config.integer("vocab_size")
    bins, frames = config.integer("num_mel_bins", default=80), config.integer("max_source_positions", default=1500)
    dropout = config.dropped("dropout")
    both: dict[str, Any] = {"biases": "qvo", "order": "pre", "dropout": dropout}
    encoder = Stack(
        blocks=_side(config, "encoder", **both),
        embeddings=(
            ("conv1", Weight(3 * bins, hidden, biases=hidden, linear=False)),
            ("conv2", Weight(3 * hidden, hidden, biases=hidden, linear=False)),
            ("positions", table(frames, hidden)),
        ),
        kind="frames",
        length=frames,
        last_norm=2,
        dropout=dropout,
    )
    longest = config.integer("max_target_positions", default=448)
    decoder = Stack(
        blocks=_side(config, "decoder", **both),
        embeddings=(("embedding", table(vocabulary, hidden)), ("positions", table(longest, hidden))),
        last_norm=2,
        dropout=dropout,
    )
    return {"vocabulary": vocabulary, "encoder": encoder, "decoder": decoder, "tied": True, "positions": longest}


FAMILIES: dict[str, Callable[[Config], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _llama,
    "phi3": _llama,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "gemma": _gemma,
    "gemma2": _gemma,
    "gemma3_text": _gemma,
    "phi": _phi,
    "gpt_neox": _gpt_neox,
    "gpt2": _gpt2,
    "mixtral": _mixtral,
    "qwen2_moe": _qwen_moe,
    "qwen3_moe": _qwen_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "bert": _bert,
    "roberta": _bert,
    "modernbert": _modernbert,
    "vit": _vit,
    "t5": _t5,
    "bart": _bart,
    "whisper": _whisper,
}
"""By `model_type`."""
