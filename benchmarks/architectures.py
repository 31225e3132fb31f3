"""Small networks of many architectures, with random weights: `NETWORKS` makes each as (module, args).

The module returns its loss.
Those of transformers come from configurations; the others are written here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
nn: Any = torch.nn
functional: Any = nn.functional

WORDS, CLASSES = 256, 10
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
DECODER = {**SMALL, "vocab_size": WORDS, "num_key_value_heads": 2, "max_position_embeddings": 128}
SEQUENCE = {
    "vocab_size": WORDS, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_position_embeddings": 128,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2}
SPEECH = {
    **SMALL, "vocab_size": 32, "num_hidden_layers": 2, "conv_dim": (32, 32, 32), "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 3), "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "layerdrop": 0.0,
}  # fmt: skip

Made = tuple[Any, tuple[Any, ...]]


class Trained(nn.Module):  # type: ignore[misc]
    """A network, and the function that calls it and returns the loss."""

    def __init__(self, net: Any, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, *given: Any) -> Any:
        """Return the loss."""
        return self.loss(self.net, *given)


def words(batch: int = 4, length: int = 64, most: int = WORDS) -> Any:
    """Draw token numbers."""
    return torch.randint(3, most, (batch, length))


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Return the loss over all positions."""
    return functional.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())


def hugging(config: str, model: str, attention: str | None = None, **given: Any) -> Any:
    """Return a model of transformers."""
    library: Any = import_module("transformers")
    made = getattr(library, config)(**given)
    kind = getattr(library, model)
    return kind(made) if attention is None else kind._from_config(made, experts_implementation=attention)


def language(
    config: str, model: str, batch: int = 4, length: int = 64, experts: str | None = None, **given: Any
) -> Made:
    """Return a language model with labels of its own."""
    net = hugging(config, model, experts, **given)

    def loss(net: Any, ids: Any, labels: Any) -> Any:
        return cross_entropy(net(input_ids=ids).logits, labels)

    if hasattr(net.config, "use_cache"):
        net.config.use_cache = False
    return Trained(net, loss), (words(batch, length), words(batch, length))


def labelled(config: str, model: str, **given: Any) -> Made:
    """Return a model that computes its loss from labels."""
    net = hugging(config, model, **given)
    if hasattr(net.config, "use_cache"):
        net.config.use_cache = False
    ids = words()
    return Trained(net, lambda net, ids: net(input_ids=ids, labels=ids).loss), (ids,)


def padded() -> Made:
    """Return a decoder with a padding mask."""
    net, (ids,) = labelled("LlamaConfig", "LlamaForCausalLM", **DECODER)
    mask = torch.ones_like(ids)
    mask[0, 40:] = mask[1, 50:] = 0
    return Trained(net.net, lambda net, ids, mask: net(input_ids=ids, attention_mask=mask, labels=ids).loss), (
        ids,
        mask,
    )


def whole_output() -> Made:
    """Return a decoder that hands out logits and its cache with the loss."""
    net = hugging("LlamaConfig", "LlamaForCausalLM", **DECODER)
    return Trained(net, lambda net, ids: net(input_ids=ids, labels=ids)), (words(),)


def images(config: str, model: str, **given: Any) -> Made:
    """Return a classifier of images."""
    net = hugging(config, model, num_labels=CLASSES, **given)
    args = torch.randn(4, 3, 64, 64), torch.randint(CLASSES, (4,))
    return Trained(net, lambda net, x, y: functional.cross_entropy(net(x).logits, y)), args


def whisper() -> Made:
    """Speech to text."""
    net = hugging(
        "WhisperConfig", "WhisperForConditionalGeneration", num_mel_bins=20, max_source_positions=50,
        max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        **{key: value for key, value in SEQUENCE.items() if key != "max_position_embeddings"},
    )  # fmt: skip
    loss = lambda net, x, y: net(input_features=x, labels=y, use_cache=False).loss  # noqa: E731
    return Trained(net, loss), (torch.randn(4, 20, 100), words(4, 32))


def segformer() -> Made:
    """Semantic segmentation."""
    net = hugging(
        "SegformerConfig", "SegformerForSemanticSegmentation", hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 4, 8], decoder_hidden_size=64, num_labels=CLASSES,
    )  # fmt: skip
    args = torch.randn(2, 3, 64, 64), torch.randint(CLASSES, (2, 64, 64))
    return Trained(net, lambda net, x, y: net(pixel_values=x, labels=y).loss), args


def detr(*, matching: bool) -> Made:
    """Detection of objects, with the Hungarian matching or without."""
    library: Any = import_module("transformers")
    backbone = library.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    net = hugging(
        "DetrConfig", "DetrForObjectDetection", use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=backbone, d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_queries=10, num_labels=5,
    )  # fmt: skip
    x = torch.randn(2, 3, 64, 64)

    def matched(net: Any, x: Any, classes: Any, boxes: Any) -> Any:
        labels = [{"class_labels": classes[i], "boxes": boxes[i]} for i in range(2)]
        return net(pixel_values=x, labels=labels).loss

    def plain(net: Any, x: Any, classes: Any) -> Any:
        found = net(pixel_values=x)
        return cross_entropy(found.logits, classes) + found.pred_boxes.square().mean()

    if matching:
        return Trained(net, matched), (x, torch.randint(5, (2, 3)), torch.rand(2, 3, 4) * 0.3 + 0.3)
    return Trained(net, plain), (x, torch.randint(5, (2, 10)))


def clip() -> Made:
    """Images and texts."""
    library: Any = import_module("transformers")
    both = {**SMALL, "num_hidden_layers": 2}
    text = {**both, "vocab_size": WORDS, "max_position_embeddings": 64, "eos_token_id": 2}
    net = library.CLIPModel(
        library.CLIPConfig(
            text_config=text, vision_config={**both, "image_size": 32, "patch_size": 8}, projection_dim=32
        )
    )
    loss = lambda net, ids, x: net(input_ids=ids, pixel_values=x, return_loss=True).loss  # noqa: E731
    return Trained(net, loss), (words(4, 32), torch.randn(4, 3, 32, 32))


def llava() -> Made:
    """A decoder that reads images, too."""
    library: Any = import_module("transformers")
    vision = library.CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
    )
    config = library.LlavaConfig(vision_config=vision, text_config=library.LlamaConfig(**DECODER), image_token_id=1)
    ids = words(2, 48)
    ids[:, 4:20] = 1

    def loss(net: Any, ids: Any, x: Any, labels: Any) -> Any:
        return cross_entropy(net(input_ids=ids, pixel_values=x, use_cache=False).logits, labels)

    args = ids, torch.randn(2, 3, 32, 32), words(2, 48)
    return Trained(library.LlavaForConditionalGeneration(config), loss), args


def speech(*, labels: bool) -> Made:
    """Wav2Vec2, with its own loss over labels or without."""
    given = {**SPEECH, "mask_time_prob": 0.05} if labels else {**SPEECH, "apply_spec_augment": False}
    net = hugging("Wav2Vec2Config", "Wav2Vec2ForCTC", **given)
    sound = torch.randn(2, 4000)
    if labels:
        return Trained(net, lambda net, x, y: net(input_values=x, labels=y).loss), (
            sound,
            torch.randint(1, 32, (2, 10)),
        )
    return Trained(net, lambda net, x: net(input_values=x).logits.square().mean()), (sound,)


class Residual(nn.Module):  # type: ignore[misc]
    """A block of a diffusion network: two convolutions, with the time step between them."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1))
        self.time = nn.Linear(64, out)
        self.second = nn.Sequential(nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
        self.skip = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: Any, time: Any) -> Any:
        """Return the block's output."""
        return self.skip(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])


class Attended(nn.Module):  # type: ignore[misc]
    """Attention over pixels, or from pixels to a text."""

    def __init__(self, channels: int, text: int | None = None) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.attention = nn.MultiheadAttention(channels, 4, kdim=text, vdim=text, batch_first=True)

    def forward(self, x: Any, text: Any = None) -> Any:
        """Return the input plus what it attends to."""
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        text = pixels if text is None else text
        return x + self.attention(pixels, text, text, need_weights=False)[0].transpose(1, 2).view_as(x)


class Denoiser(nn.Module):  # type: ignore[misc]
    """A diffusion U-Net of two levels."""

    def __init__(self, channels: int, text: int | None = None) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 64))
        self.enter = nn.Conv2d(channels, 32, 3, padding=1)
        self.down = nn.ModuleList([Residual(32, 32), Residual(32, 64)])
        self.middle = Attended(64, text)
        self.up = nn.ModuleList([Residual(128, 64), Residual(96, 32)])
        self.leave = nn.Conv2d(32, channels, 3, padding=1)

    def forward(self, x: Any, steps: Any, text: Any = None) -> Any:
        """Return the noise that it finds."""
        waves = steps[:, None] * torch.exp(-torch.arange(16, device=x.device) / 2)
        time = self.time(torch.cat([waves.sin(), waves.cos()], 1))
        one = self.down[0](self.enter(x), time)
        two = self.down[1](functional.avg_pool2d(one, 2), time)
        x = self.up[0](torch.cat([self.middle(two, text), two], 1), time)
        x = self.up[1](torch.cat([functional.interpolate(x, scale_factor=2.0), one], 1), time)
        return self.leave(x)


def denoiser() -> Made:
    """A U-Net with a text as condition; noise and time steps are arguments."""
    args = torch.randn(2, 4, 16, 16), torch.tensor([5, 9]), torch.randn(2, 8, 32), torch.randn(2, 4, 16, 16)
    return Trained(Denoiser(4, 32), lambda net, x, t, c, n: functional.mse_loss(net(x, t, c), n)), args


def denoiser_drawn() -> Made:
    """A U-Net whose step draws noise and time steps itself."""
    kept = torch.linspace(0.99, 0.01, 1000)

    def loss(net: Any, x: Any) -> Any:
        noise = torch.randn_like(x)
        steps = torch.randint(1000, (x.shape[0],))
        share = kept[steps][:, None, None, None]
        return functional.mse_loss(net(share.sqrt() * x + (1 - share).sqrt() * noise, steps), noise)

    return Trained(Denoiser(3), loss), (torch.randn(2, 3, 16, 16),)


class DiT(nn.Module):  # type: ignore[misc]
    """A diffusion transformer whose norms are modulated by class and time step."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, 64, 2, 2)
        self.label, self.time = nn.Embedding(CLASSES, 64), nn.Linear(1, 64)
        self.norm = nn.LayerNorm(64, elementwise_affine=False)
        self.blocks = nn.ModuleList([nn.ModuleList([nn.Linear(64, 384), nn.MultiheadAttention(64, 4, batch_first=True), nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))]) for _ in range(2)])  # fmt: skip  # noqa: E501
        self.leave = nn.Linear(64, 16)

    def forward(self, x: Any, steps: Any, classes: Any) -> Any:
        """Return the noise, patch by patch."""
        x = self.enter(x).flatten(2).transpose(1, 2)
        told = functional.silu(self.label(classes) + self.time(steps[:, None].float() / 1000))
        for modulate, attention, mlp in self.blocks:
            a, b, c, d, e, f = modulate(told)[:, None].chunk(6, -1)
            y = self.norm(x) * (1 + a) + b
            x = x + c * attention(y, y, y, need_weights=False)[0]
            x = x + f * mlp(self.norm(x) * (1 + d) + e)
        return self.leave(x)


def dit() -> Made:
    """A diffusion transformer."""
    args = torch.randn(2, 4, 8, 8), torch.tensor([5, 9]), torch.tensor([1, 2])
    return Trained(DiT(), lambda net, *given: net(*given).square().mean()), args


class Recommender(nn.Module):  # type: ignore[misc]
    """Tables of embeddings whose rows interact pairwise (DLRM)."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(1000, 32, mode="sum", sparse=sparse) for _ in range(6))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(32 + 21, 64), nn.ReLU(), nn.Linear(64, 1))
        one, two = torch.tril_indices(7, 7, -1)
        self.register_buffer("one", one)
        self.register_buffer("two", two)

    def forward(self, dense: Any, ids: Any, offsets: Any) -> Any:
        """Return a logit for each sample."""
        looked_up = [table(ids[k], offsets[k]) for k, table in enumerate(self.tables)]
        z = torch.stack([self.bottom(dense), *looked_up], 1)
        pairs = torch.bmm(z, z.transpose(1, 2))[:, self.one, self.two]
        return self.top(torch.cat([z[:, 0], pairs], 1)).squeeze(1)


def recommender(*, sparse: bool) -> Made:
    """DLRM, with dense gradients or sparse ones."""
    loss = lambda net, d, i, o, y: functional.binary_cross_entropy_with_logits(net(d, i, o), y)  # noqa: E731
    args = torch.randn(64, 13), torch.randint(1000, (6, 192)), torch.arange(0, 192, 3).repeat(6, 1), torch.rand(64)
    return Trained(Recommender(sparse=sparse), loss), args


class GraphAttention(nn.Module):  # type: ignore[misc]
    """Attention over the edges of a graph, with scatter operators."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.scores = nn.ParameterList(nn.Parameter(torch.randn(heads, 2 * width // heads) / 10) for _ in range(3))
        self.last = nn.Linear(width, 5)

    def forward(self, x: Any, edges: Any) -> Any:
        """Return logits of nodes."""
        count, (start, end) = x.shape[0], edges
        for layer, score in zip(self.layers, self.scores, strict=True):
            z = layer(x).view(count, self.heads, -1)
            each = functional.leaky_relu((torch.cat([z[start], z[end]], -1) * score).sum(-1))
            most = torch.full((count, self.heads), -1e9)
            most = most.scatter_reduce(0, end[:, None].expand(-1, self.heads), each, "amax")
            weight = (each - most[end]).exp()
            total = torch.zeros(count, self.heads).index_add(0, end, weight)
            read = z[start] * (weight / total[end])[..., None]
            x = functional.elu(torch.zeros_like(z).index_add(0, end, read).flatten(1)) + x
        return self.last(x)


def graph() -> Made:
    """A graph network."""
    args = torch.randn(200, 32), torch.randint(200, (2, 1000)), torch.randint(5, (200,))
    return Trained(GraphAttention(), lambda net, x, edges, y: functional.cross_entropy(net(x, edges), y)), args


def recurrent(kind: Any, width: int, **given: Any) -> Made:
    """A language model of recurrent layers."""
    layer = kind(32, 64, batch_first=True, **given)
    net = nn.ModuleDict({"embed": nn.Embedding(WORDS, 32), "layer": layer, "last": nn.Linear(width, WORDS)})
    loss = lambda net, x, y: cross_entropy(net["last"](net["layer"](net["embed"](x))[0]), y)  # noqa: E731
    return Trained(net, loss), (words(4, 32), words(4, 32))


def packed() -> Made:
    """An LSTM on a packed sequence."""
    net = recurrent(nn.LSTM, 64)[0].net

    def loss(net: Any, x: Any, lengths: Any) -> Any:
        rows = nn.utils.rnn.pack_padded_sequence(net["embed"](x), lengths, batch_first=True, enforce_sorted=False)
        return net["last"](net["layer"](rows)[0].data).square().mean()

    return Trained(net, loss), (words(4, 32), torch.tensor([32, 20, 30, 10]))


def encoder() -> Made:
    """PyTorch's own transformer."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    net = nn.Sequential(nn.Embedding(WORDS, 64), layers, nn.Linear(64, WORDS))
    return Trained(net, lambda net, x, y: cross_entropy(net(x), y)), (words(), words())


class Flexible(nn.Module):  # type: ignore[misc]
    """FlexAttention with a bias for distances."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, x: Any) -> Any:
        """Return the loss."""
        flex: Any = import_module("torch.nn.attention.flex_attention")
        heads = self.project(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        return flex.flex_attention(*heads, score_mod=lambda s, b, h, i, j: s - (i - j).abs()).square().mean()


class Fourier(nn.Module):  # type: ignore[misc]
    """A Fourier neural operator, with complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, 9, dtype=torch.cfloat) / 10)
        self.local = nn.Conv1d(8, 8, 1)

    def forward(self, x: Any) -> Any:
        """Return the loss."""
        for _ in range(3):
            low = torch.einsum("bci,coi->boi", torch.fft.rfft(x)[..., :9], self.weight)
            x = functional.gelu(torch.fft.irfft(low, n=64) + self.local(x))
        return x.square().mean()


LLAMA = ("LlamaConfig", "LlamaForCausalLM")
MIXTRAL = partial(language, "MixtralConfig", "MixtralForCausalLM", num_local_experts=4, **EXPERTS, **DECODER)
ENCODER = {key: value for key, value in DECODER.items() if key not in ("num_key_value_heads",)}

NETWORKS: dict[str, Callable[[], Made]] = {
    "llama": partial(language, *LLAMA, **DECODER),
    "llama, labels": partial(labelled, *LLAMA, **DECODER),
    "llama, padding mask": padded,
    "llama, whole output": whole_output,
    "mistral": partial(language, "MistralConfig", "MistralForCausalLM", sliding_window=32, **DECODER),
    "qwen3": partial(language, "Qwen3Config", "Qwen3ForCausalLM", head_dim=16, **DECODER),
    "gemma3": partial(
        language, "Gemma3TextConfig", "Gemma3ForCausalLM", head_dim=16, sliding_window=32,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], **DECODER,
    ),
    "mixtral": MIXTRAL,
    "mixtral, grouped_mm": partial(MIXTRAL, experts="grouped_mm"),
    "mixtral, batched_mm": partial(MIXTRAL, experts="batched_mm"),
    "mixtral, eager experts": partial(MIXTRAL, experts="eager"),
    "qwen3 moe": partial(
        language, "Qwen3MoeConfig", "Qwen3MoeForCausalLM", head_dim=16, num_experts=4, moe_intermediate_size=64,
        **EXPERTS, **DECODER,
    ),
    "deepseek v3": partial(
        language, "DeepseekV3Config", "DeepseekV3ForCausalLM", moe_intermediate_size=64, n_routed_experts=8, n_group=2,
        topk_group=1, q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16,
        first_k_dense_replace=1, **EXPERTS, **{**DECODER, "num_key_value_heads": 4},
    ),
    "gpt-neox": partial(language, "GPTNeoXConfig", "GPTNeoXForCausalLM", **ENCODER),
    "gpt-2, dropout": partial(
        language, "GPT2Config", "GPT2LMHeadModel", vocab_size=WORDS, n_positions=64, n_embd=64, n_layer=3, n_head=4
    ),
    "bert": partial(language, "BertConfig", "BertForMaskedLM", **ENCODER),
    "modernbert": partial(
        language, "ModernBertConfig", "ModernBertForMaskedLM", pad_token_id=0, bos_token_id=1, eos_token_id=2,
        cls_token_id=1, sep_token_id=2, **ENCODER,
    ),
    "t5": partial(
        labelled, "T5Config", "T5ForConditionalGeneration", num_layers=2, num_decoder_layers=2, d_model=64, d_kv=16,
        num_heads=4, d_ff=128, vocab_size=WORDS, decoder_start_token_id=0,
    ),
    "bart": partial(labelled, "BartConfig", "BartForConditionalGeneration", **SEQUENCE),
    "whisper": whisper,
    "vit": partial(images, "ViTConfig", "ViTForImageClassification", image_size=64, patch_size=8, **SMALL),
    "swin": partial(
        images, "SwinConfig", "SwinForImageClassification", image_size=64, patch_size=4, embed_dim=24, depths=[2, 2],
        num_heads=[3, 6], window_size=4, drop_path_rate=0.3,
    ),
    "convnext": partial(
        images, "ConvNextConfig", "ConvNextForImageClassification", hidden_sizes=[16, 32, 48], depths=[2, 2, 2],
        num_stages=3, drop_path_rate=0.1,
    ),
    "regnet": partial(
        images, "RegNetConfig", "RegNetForImageClassification", embedding_size=16, hidden_sizes=[32, 64], depths=[2, 3],
        groups_width=16,
    ),
    "resnet": partial(
        images, "ResNetConfig", "ResNetForImageClassification", embedding_size=16, hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
    ),
    "segformer": segformer,
    "detr": partial(detr, matching=True),
    "detr, own loss": partial(detr, matching=False),
    "clip": clip,
    "wav2vec2": partial(speech, labels=True),
    "wav2vec2, own loss": partial(speech, labels=False),
    "mamba": partial(
        language, "MambaConfig", "MambaForCausalLM", 2, 24, vocab_size=WORDS, hidden_size=32, state_size=8,
        num_hidden_layers=2,
    ),
    "mamba2": partial(
        language, "Mamba2Config", "Mamba2ForCausalLM", 2, 32, vocab_size=WORDS, hidden_size=32, state_size=8,
        num_hidden_layers=2, num_heads=4, head_dim=16, n_groups=1, chunk_size=16,
    ),
    "rwkv": partial(
        language, "RwkvConfig", "RwkvForCausalLM", 2, 24, vocab_size=WORDS, hidden_size=32, attention_hidden_size=32,
        num_hidden_layers=2, context_length=32,
    ),
    "llava": llava,
    "diffusion U-Net, text": denoiser,
    "diffusion U-Net, drawn noise": denoiser_drawn,
    "diffusion transformer": dit,
    "dlrm": partial(recommender, sparse=False),
    "dlrm, sparse gradients": partial(recommender, sparse=True),
    "graph attention": graph,
    "lstm": partial(recurrent, nn.LSTM, 64, num_layers=2, dropout=0.2),
    "gru": partial(recurrent, nn.GRU, 128, num_layers=2, bidirectional=True),
    "lstm, packed": packed,
    "nn.TransformerEncoder": encoder,
    "flex attention": lambda: (Flexible(), (torch.randn(2, 64, 32),)),
    "complex FFT": lambda: (Fourier(), (torch.randn(4, 8, 64),)),
}  # fmt: skip
"""By name, the factories."""
