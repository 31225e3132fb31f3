"""Networks for the benchmarks of plans through Inductor and on a GPU: each returns its loss."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

BLOCKS = ("LlamaDecoderLayer", "GPT2Block", "Bottleneck", "ResnetBlock", "Mixer", "BertLayer", "ViTLayer")
"""Classes of modules that are checkpointed one by one."""

Made = tuple[Any, tuple[Any, ...]]


def compiler_of(*, one_thread: bool = True) -> Any:
    """Return PyTorch, ready to compile many graphs in this process."""
    torch: Any = import_module("torch")
    dynamo: Any = import_module("torch._dynamo.config")
    inductor: Any = import_module("torch._inductor.config")
    dynamo.recompile_limit = 64
    if one_thread:
        torch.set_num_threads(1)
        inductor.compile_threads = 1
    return torch


def peak_of(step: Callable[[], Any], module: Any) -> int:
    """Return the allocator's peak of a forward and backward that find no gradients, and leave none."""
    measure: Any = import_module("remat.bridges.torch.measure")
    peak = 0
    while not peak:  # the profiler sometimes hands over no events
        module.zero_grad(set_to_none=True)
        _, peak = measure.allocator_peak(step)
    module.zero_grad(set_to_none=True)
    return int(peak)


def blocks(module: Any) -> list[Any]:
    """Return the blocks of a network, in order."""
    return [part for part in module.modules() if type(part).__name__ in BLOCKS]


def network(name: str, scale: str = "full", seed: int = 0) -> Made:
    """Return a network in training, and what it is called with; the same every time."""
    import_module("torch").manual_seed(seed)
    module, args = NETWORKS[name](scale == "small")
    return module.train(), args


def _models() -> Any:
    return import_module("tests.torch.models")


def _llama(small: bool) -> Made:
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    length, width, layers = (128, 128, 2) if small else (256, 256, 4)
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=width, intermediate_size=width * 43 // 16, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=length, use_cache=False,
    )  # fmt: skip
    ids = torch.randint(0, 1000, (2 if small else 8, length))
    return _with_loss(transformers.LlamaForCausalLM(config)), (ids, torch.randint(0, 1000, ids.shape))


def _with_loss(model: Any) -> Any:
    torch: Any = import_module("torch")

    class Loss(torch.nn.Module):  # type: ignore[misc]
        """A language model that returns its loss, and no logits."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, labels: Any) -> Any:
            logits = self.model(input_ids=ids, use_cache=False).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return Loss()


def _gpt2(small: bool) -> Made:
    length, width, layers = (64, 96, 2) if small else (256, 256, 6)
    module, args, _ = _models().gpt2_small(
        batch=2 if small else 8, length=length, vocab_size=1000, n_positions=length, n_embd=width, n_layer=layers,
        n_head=4, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return module, args


def _resnet(small: bool) -> Made:
    depths, width, pixels = ((1, 1, 1, 1), 8, 64) if small else ((3, 4, 6, 3), 32, 160)
    module, args, _ = _models().resnet50(
        batch=2 if small else 8, pixels=pixels, depths=depths, width=width, classes=100
    )
    return module, args


def _densenet(small: bool) -> Made:
    depths, pixels = ((2, 2, 2, 2), 64) if small else ((6, 12, 24, 16), 128)
    module, args, _ = _models().densenet121(
        batch=2 if small else 4, pixels=pixels, depths=depths, growth=8, classes=100
    )
    return module, args


def _bert(small: bool) -> Made:
    width, layers, length = (64, 2, 64) if small else (256, 4, 128)
    module, args, _ = _models().bert_base(
        batch=2 if small else 8, length=length, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=4 * width, vocab_size=1000,
    )  # fmt: skip
    return module, args


def _diffusion(small: bool) -> Made:
    torch: Any = import_module("torch")
    nn, functional = torch.nn, torch.nn.functional
    width, pixels = (16, 16) if small else (64, 64)

    class ResnetBlock(nn.Module):  # type: ignore[misc,name-defined]
        """Two convolutions with group normalisation, and the embedding of the time step between them."""

        def __init__(self, channels: int, out: int) -> None:
            super().__init__()
            self.one, self.two = nn.GroupNorm(8, channels), nn.GroupNorm(8, out)
            self.first, self.second = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
            self.time = nn.Linear(4 * width, out)
            self.short = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

        def forward(self, x: Any, step: Any) -> Any:
            y = self.first(functional.silu(self.one(x))) + self.time(functional.silu(step))[:, :, None, None]
            return self.short(x) + self.second(functional.silu(self.two(y)))

    class Mixer(nn.Module):  # type: ignore[misc,name-defined]
        """Attention over pixels."""

        def __init__(self, channels: int) -> None:
            super().__init__()
            self.norm, self.enter = nn.GroupNorm(8, channels), nn.Linear(channels, 3 * channels)
            self.leave = nn.Linear(channels, channels)

        def forward(self, x: Any) -> Any:
            batch, channels, height, breadth = x.shape
            rows = self.norm(x).flatten(2).transpose(1, 2)
            heads = self.enter(rows).view(batch, height * breadth, 3, 4, channels // 4).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(*heads.unbind()).transpose(1, 2).flatten(2)
            return x + self.leave(mixed).transpose(1, 2).view_as(x)

    class Diffusion(nn.Module):  # type: ignore[misc,name-defined]
        """A U-Net that predicts noise."""

        def __init__(self) -> None:
            super().__init__()
            self.step = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
            self.first = nn.Conv2d(4, width, 3, padding=1)
            sizes = (width, 2 * width, 4 * width)
            self.down = nn.ModuleList(
                [ResnetBlock(width, sizes[0]), ResnetBlock(sizes[0], sizes[1]), ResnetBlock(sizes[1], sizes[2])]
            )
            self.shrink = nn.ModuleList([nn.Conv2d(size, size, 3, 2, 1) for size in sizes[:2]])
            self.middle = nn.ModuleList([ResnetBlock(sizes[2], sizes[2]), ResnetBlock(sizes[2], sizes[2])])
            self.mix = Mixer(sizes[2])
            self.up = nn.ModuleList(
                [
                    ResnetBlock(2 * sizes[2], sizes[1]),
                    ResnetBlock(2 * sizes[1], sizes[0]),
                    ResnetBlock(2 * width, width),
                ]
            )
            self.norm, self.last = nn.GroupNorm(8, width), nn.Conv2d(width, 4, 3, padding=1)

        def forward(self, x: Any, step: Any, noise: Any) -> Any:
            step, x = self.step(step), self.first(x)
            passed = []
            for index, block in enumerate(self.down):
                x = block(x, step)
                passed.append(x)
                if index < len(self.shrink):
                    x = self.shrink[index](x)
            x = self.middle[1](self.mix(self.middle[0](x, step)), step)
            for index, block in enumerate(self.up):
                x = block(torch.cat([x, passed.pop()], 1), step)
                if index < len(self.shrink):
                    x = functional.interpolate(x, scale_factor=2.0)
            return functional.mse_loss(self.last(functional.silu(self.norm(x))), noise)

    batch = 2 if small else 4
    noise = torch.randn(batch, 4, pixels, pixels)
    return Diffusion(), (torch.randn_like(noise), torch.randn(batch, width), noise)


def _unet(small: bool) -> Made:
    torch: Any = import_module("torch")
    pixels = 32 if small else 64
    shape = (2, 3, pixels, pixels)
    return _models().UNet(8 if small else 16), (torch.randn(shape), torch.rand(2, 1, pixels, pixels))


def _mlp(small: bool, dropout: float = 0.0) -> Made:
    nn: Any = import_module("torch").nn
    width, batch = (64, 256) if small else (256, 2048)
    layers = [part for _ in range(6) for part in (nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout))]
    module, args, _ = _models().labelled(nn.Sequential(*layers, nn.Linear(width, 5)), batch, width)
    return module, args


def _vit(small: bool) -> Made:
    torch: Any = import_module("torch")
    nn = torch.nn
    width, layers = (32, 2) if small else (192, 4)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)

    class Vision(nn.Module):  # type: ignore[misc,name-defined]
        """Patches, a transformer, and classes."""

        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, 8, 8)
            self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = nn.Linear(width, 10)

        def forward(self, x: Any, y: Any) -> Any:
            rows = self.patches(x).flatten(2).transpose(1, 2)
            return nn.functional.cross_entropy(self.head(self.layers(rows).mean(1)), y)

    return Vision(), (torch.randn(2 if small else 8, 3, 64, 64), torch.randint(0, 10, (2 if small else 8,)))


def _mixer(small: bool) -> Made:
    torch: Any = import_module("torch")
    nn = torch.nn
    width, layers, batch = (32, 2, 4) if small else (192, 6, 8)
    patches = 64

    class Layer(nn.Module):  # type: ignore[misc,name-defined]
        """A perceptron over patches, and one over channels."""

        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
            self.across = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
            self.along = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            x = x + self.across(self.one(x).transpose(1, 2)).transpose(1, 2)
            return x + self.along(self.two(x))

    class MlpMixer(nn.Module):  # type: ignore[misc,name-defined]
        """Patches, layers of perceptrons, and classes."""

        def __init__(self) -> None:
            super().__init__()
            self.patches, self.norm = nn.Conv2d(3, width, 8, 8), nn.LayerNorm(width)
            self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
            self.head = nn.Linear(width, 10)

        def forward(self, x: Any, y: Any) -> Any:
            rows = self.layers(self.patches(x).flatten(2).transpose(1, 2))
            return nn.functional.cross_entropy(self.head(self.norm(rows).mean(1)), y)

    return MlpMixer(), (torch.randn(batch, 3, 64, 64), torch.randint(0, 10, (batch,)))


NETWORKS: dict[str, Callable[[bool], Made]] = {
    "llama": _llama,
    "resnet": _resnet,
    "diffusion": _diffusion,
    "gpt2": _gpt2,
    "bert": _bert,
    "vit": _vit,
    "mixer": _mixer,
    "densenet": _densenet,
    "unet": _unet,
    "mlp": _mlp,
    "dropout": lambda small: _mlp(small, 0.5),
}
TIMES = ("llama", "resnet", "diffusion")
