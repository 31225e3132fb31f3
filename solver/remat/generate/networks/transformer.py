"""Analytic transformer chains from published layer formulas.

Activations follow Korthikanti et al. 2022, *Reducing activation recomputation in large transformer models*
(section 4), tensor by tensor. At 16 bit a layer needs ``s*b*h*(34 + 5*a*s/h)`` bytes, including its input. Tiled
attention (Dao et al. 2022, *FlashAttention*) does not have the term with `a`.

Arithmetic: ``24*b*s*h^2 + 4*b*s^2*h`` FLOP forward per layer and twice that backward, ``2*b*s*h*V`` for the logits. The
backward of tiled attention recomputes its scores, which costs another half of its forward.

Parameters, with biases and norms: ``12*l*h^2*(1 + 13/(12*h)) + (V + s)*h + 2*h``, after Narayanan et al. 2021,
*Efficient large-scale language model training on GPU clusters*, plus the final norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from remat.generate import check
from remat.generate.devices import DEFAULT
from remat.generate.document import SECONDS_AND_BYTES, Document, document
from remat.generate.networks.operations import BYTES, Device, Operation, Tensor, check_stages, roofline, stage
from remat.generate.networks.parameters import States, with_parameters

TOKEN = 8  # bytes of a token or position id (int64)
FLOAT32 = 4
LONGEST = 10**12
"""Maximum number of tokens before a slice."""
GRANULARITIES = ("block", "sublayer")


@dataclass(frozen=True, slots=True)
class Architecture:
    """Hyper-parameters of a transformer language model.

    `gated` selects the Llama style: SwiGLU with three matrices, RMSNorm, no biases. `rotary` means that
    no table of positions is learned, `tied` that the head shares the embedding's matrix. `key_heads` is the number of
    heads of keys and values that the queries share (0: one per query head).
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    feedforward: int
    gated: bool = False
    rotary: bool = False
    tied: bool = True
    dropout: bool = True
    key_heads: int = 0

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads

    @property
    def key_width(self) -> int:
        """Width of all keys, or of all values."""
        return (self.key_heads or self.heads) * self.head_width

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: LayerNorm has two vectors, RMSNorm one."""
        return self.hidden if self.gated else 2 * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Parameters of one block: ``12*h^2 + 13*h`` for the classical one."""
        inner = (3 if self.gated else 2) * self.hidden * self.feedforward
        biases = 0 if self.gated else self.hidden + self.feedforward
        return self.attention_parameters + inner + biases + self.norm_parameters

    @property
    def attention_parameters(self) -> int:
        """Parameters of a block's first half, its norm included."""
        matrices = 2 * self.hidden * (self.hidden + self.key_width)
        biases = 0 if self.gated else 2 * (self.hidden + self.key_width)
        return matrices + biases + self.norm_parameters

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden
        positions = 0 if self.rotary else self.sequence * self.hidden
        return self.layers * self.layer_parameters + embeddings + positions + self.norm_parameters

    def stage_parameters(self, granularity: str) -> list[int]:
        """Parameters of each listed stage; a matrix that the head shares counts with the embedding."""
        table = self.vocabulary * self.hidden
        embedding = table + (0 if self.rotary else self.sequence * self.hidden)
        head = self.norm_parameters + (0 if self.tied else table)
        if granularity == "block":
            return [embedding, self.layer_parameters, head]
        attention = self.attention_parameters
        return [embedding, *[attention, self.layer_parameters - attention] * self.layers, head]

    def stage_factors(self, granularity: str) -> list[int]:
        """Rows and columns of the matrices of each listed stage, and the lengths of its vectors."""
        h, f, keys = self.hidden, self.feedforward, self.key_width
        table = self.vocabulary + h
        embedding = table + (0 if self.rotary else self.sequence + h)
        head = self.norm_parameters + (0 if self.tied else table)
        attention = (h + h + 2 * keys) + (h + h) + (0 if self.gated else 2 * (h + keys)) + self.norm_parameters
        mlp = (3 if self.gated else 2) * (h + f) + (0 if self.gated else h + f) + self.norm_parameters
        if granularity == "block":
            return [embedding, attention + mlp, head]
        return [embedding, *[attention, mlp] * self.layers, head]


SomeArchitecture = TypeVar("SomeArchitecture", bound=Architecture)

PRESETS = {
    # Radford et al. 2019; head counts from the released models
    "gpt2-small": Architecture(12, 768, 12, 1024, 50257, 3072),
    "gpt2-xl": Architecture(48, 1600, 25, 1024, 50257, 6400),
    # Touvron et al. 2023, table 2; 11008 and 2048 from the released model
    "llama-7b-like": Architecture(32, 4096, 32, 2048, 32000, 11008, gated=True, rotary=True, tied=False, dropout=False),
    # Touvron et al. 2023 (Llama 2), whose released model has these widths, groups of 8 queries and 4096 tokens
    "llama-70b": Architecture(
        80, 8192, 64, 4096, 32000, 28672, gated=True, rotary=True, tied=False, dropout=False, key_heads=8
    ),
    # Devlin et al. 2019, without the segment embeddings and the pooler
    "bert-large": Architecture(24, 1024, 16, 512, 30522, 4096),
}

SHAPE: tuple[str, ...] = ("layers", "hidden", "heads", "sequence", "vocabulary", "feedforward", "key_heads")


def transformer(
    *,
    preset: str = "gpt2-small",
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    sequence: int | None = None,
    vocabulary: int | None = None,
    feedforward: int | None = None,
    key_heads: int | None = None,
    dropout: bool | None = None,
    batch: int = 8,
    dtype: str = "bf16",
    flash: bool = True,
    granularity: str = "block",
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
    before: int = 0,
    **states: Any,
) -> Document:
    """Return the training step of a transformer as a chain: embedding, blocks, head, loss.

    Parameters
    ----------
    preset : {"gpt2-small", "gpt2-xl", "llama-7b-like", "llama-70b", "bert-large"}
    layers, hidden, heads, sequence, vocabulary, feedforward, key_heads : int, optional
        l, h, a, s, V, the MLP's inner width (4*h with `hidden`), the heads of keys and values, which queries share.
    dropout : bool, optional
        Whether dropout masks (one byte per element) are drawn and saved.
    batch, dtype, flash
        Sequences in a (micro-)batch; fp16, bf16 or fp32; tiled attention, without score matrices.
    granularity : {"block", "sublayer"}
        A stage per block, or attention and MLP apart.
    flops, bandwidth : float, optional
        Default: those of the device for `dtype`.
    device : str
        A name of the shipped table.
    before : int
        Tokens of each sequence that precede this slice; all slices together have the arithmetic of the whole sequence.
    **states
        Fields of `States`: optimizer, where parameters and states lie, ranks that share them out.

    Returns
    -------
    dict
        Kind ``chain``, seconds and bytes; equal blocks are one stage; the loss's workspace is the fp32 softmax.
        ValueError for a parameter out of range, or sizes beyond 2^62 bytes.
    """
    _check_choices(preset=preset, dtype=dtype, granularity=granularity)
    training = States(**states)
    given = (layers, hidden, heads, sequence, vocabulary, feedforward, key_heads)
    model = architecture(preset, dict(zip(SHAPE, given, strict=True)), dropout)
    many = check.integer("batch", batch, minimum=1)
    kernels = Kernels(model, many, BYTES[dtype], flash, check.integer("before", before, maximum=LONGEST))
    machine = roofline(dtype, flops, bandwidth, device)
    stages = _stages(kernels, granularity, machine, frozen=training.frozen)
    softmax = FLOAT32 * kernels.tokens * model.vocabulary
    sizes, factors = model.stage_parameters(granularity), model.stage_factors(granularity)
    static = training.static_bytes(BYTES[dtype], model.parameters, _repeated(stages, factors))
    check_stages(stages, static, "make the batch, the sequence or the model smaller")
    made = document(
        kind="chain",
        name=_name(preset, model, batch, dtype, flash, granularity),
        description=f"{_described(kernels, dtype)}, {_trained(training)}; published formulas, roofline times "
        f"at {machine.flops / 1e12:g} TFLOP/s and {machine.bandwidth / 1e12:g} TB/s",
        units=SECONDS_AND_BYTES,
        static_memory=static or None,
        input_size=TOKEN * kernels.tokens,
        stages=stages,
        loss={"time": _loss_time(stages[-1]["output_size"], softmax, machine), "workspace": softmax},
        input_gradient=False,
    )
    if training.parameters in ("static", "none"):
        return made
    return with_parameters(made, sizes, factors, states=training, element=BYTES[dtype], device=machine)


def _repeated(stages: list[dict[str, Any]], figures: list[int]) -> int:
    """Return the sum of figures of listed stages, repeats counted."""
    return sum(stage.get("repeat", 1) * figure for stage, figure in zip(stages, figures, strict=True))


CHOICES = {
    "preset": tuple(PRESETS),
    "dtype": tuple(BYTES),
    "granularity": GRANULARITIES,
}


def _check_choices(**given: str) -> None:
    for name, value in given.items():
        check.choice(name, value, CHOICES[name])


def _described(kernels: Kernels, dtype: str) -> str:
    model, attention = kernels.model, "flash attention" if kernels.flash else "attention scores stored"
    return (
        f"Transformer, {model.layers} layers, hidden {model.hidden}, {model.heads} heads, {kernels.batch} x "
        f"{model.sequence} tokens, vocabulary {model.vocabulary}, {dtype}, {attention}, {model.parameters:,} parameters"
    )


def _trained(training: States) -> str:
    """Describe the placement and training of the parameters."""
    if training.parameters == "none":
        return "parameters left out"
    return "frozen" if training.frozen else f"optimizer {training.optimizer}"


def _stages(kernels: Kernels, granularity: str, machine: Device, *, frozen: bool) -> list[dict[str, Any]]:
    """Return the stages: embedding, blocks or their halves, head."""
    layers = kernels.model.layers

    def made(name: str, operations: list[Operation], **more: Any) -> dict[str, Any]:
        own = [replace(operation, gradient=0) for operation in operations] if frozen else operations
        return stage(name=name, operations=own, device=machine, **more)

    stages = [made("embedding", kernels.embedding(), input_gradient=False)]
    if granularity == "block":
        stages.append(made("block", [*kernels.attention(), *kernels.mlp()], repeat=layers))
    else:
        sublayers = [made("attention", kernels.attention()), made("mlp", kernels.mlp())]
        stages += [{**sublayer, "name": f"{sublayer['name']}{i}"} for i in range(layers) for sublayer in sublayers]
    stages.append(made("head", kernels.head()))
    return stages


def activation_bytes(*, batch: int, sequence: int, hidden: int, heads: int, flash: bool = False) -> int:
    """Return ``s*b*h*(34 + 5*a*s/h)``: bytes of one layer's activations at 16 bit, its input included.

    Equation 2 of Korthikanti et al. 2022; with `flash` the last term goes (their section 5.3).
    """
    linear = 34 * sequence * batch * hidden
    return linear if flash else linear + 5 * heads * sequence**2 * batch


@dataclass(frozen=True, slots=True)
class Kernels:
    """The operations of a transformer's layers, for `batch` sequences at `element` bytes."""

    model: Architecture
    batch: int
    element: int
    flash: bool
    before: int = 0

    @property
    def attended(self) -> int:
        """Tokens that each token attends to, on average; of a slice of n tokens after c, n + 2 c.

        Causal attention needs half of that, in slices as in the whole: n (n + 2 c) added up over slices is s^2.
        """
        return self.model.sequence + 2 * self.before

    @property
    def tokens(self) -> int:
        """Tokens in a batch, b*s."""
        return self.batch * self.model.sequence

    def embedding(self) -> list[Operation]:
        """Token and position tables, their sum, dropout."""
        model, wide = self.model, self._wide("x")
        ids = Tensor("ids", TOKEN * self.tokens, differentiable=False)
        table = self.element * model.vocabulary * model.hidden
        if model.rotary:
            return [Operation("lookup", (ids,), (wide,), (ids,), weights=table, gathered=True)]
        words, summed = self._wide("words"), self._wide("summed")
        indices = Tensor("indices", TOKEN * model.sequence, differentiable=False)
        positions = Tensor("positions", self.element * model.sequence * model.hidden)
        return [
            Operation("lookup", (ids,), (words,), (ids,), weights=table, gathered=True),
            Operation("positions", (), (positions, indices), (indices,), weights=positions.size, gathered=True),
            Operation("sum", (words, positions), (summed if model.dropout else wide,), passes_gradient=True),
            *self._dropout("mask", summed, wide),
        ]

    def attention(self) -> list[Operation]:
        """Norm, projections, attention, output projection, dropout, residual sum: x -> middle."""
        h = self.model.hidden
        x, normed, middle = self._wide("x"), self._wide("normed1"), self._wide("middle")
        columns = h + 2 * self.model.key_width
        qkv = Tensor("qkv", self.element * self.tokens * columns)
        mixed, projected = self._wide("mixed"), self._wide("projected")
        dropped = self._wide("dropped1") if self.model.dropout else projected
        return [
            self._norm("norm1", x, normed),
            self._matrix("qkv", normed, qkv, h, columns),
            *(self._tiled(qkv, mixed) if self.flash else self._scored(qkv, mixed)),
            self._matrix("project", mixed, projected, h, h),
            *self._dropout("mask1", projected, dropped),
            Operation("residual1", (x, dropped), (middle,), passes_gradient=True),
        ]

    def mlp(self) -> list[Operation]:
        """Norm, MLP (plain with GELU, or gated with SiLU), dropout, residual sum: middle -> y."""
        h, f = self.model.hidden, self.model.feedforward
        middle, normed, y = self._wide("middle"), self._wide("normed2"), self._wide("y")
        inner = {name: Tensor(name, self.element * self.tokens * f) for name in ("up", "gate", "silu", "active")}
        up, active = inner["up"], inner["active"]
        if self.model.gated:
            gate, silu = inner["gate"], inner["silu"]
            activation = [
                self._matrix("gate", normed, gate, h, f),
                self._matrix("up", normed, up, h, f),
                Operation("silu", (gate,), (silu,), (gate,)),
                Operation("product", (silu, up), (active,), (silu, up)),
            ]
        else:
            activation = [self._matrix("up", normed, up, h, f), Operation("gelu", (up,), (active,), (up,))]
        down = self._wide("down")
        dropped = self._wide("dropped2") if self.model.dropout else down
        return [
            self._norm("norm2", middle, normed),
            *activation,
            self._matrix("down", active, down, f, h),
            *self._dropout("mask2", down, dropped),
            Operation("residual2", (middle, dropped), (y,), passes_gradient=True),
        ]

    def head(self) -> list[Operation]:
        """Final norm and logits: y -> logits (a tied matrix has its gradient here as well)."""
        h, v = self.model.hidden, self.model.vocabulary
        y, normed, logits = self._wide("y"), self._wide("normed"), Tensor("logits", self.element * self.tokens * v)
        return [
            self._norm("norm", y, normed),
            Operation(
                "logits", (normed,), (logits,), (normed,), flops=2 * self.tokens * h * v, weights=self.element * h * v
            ),
        ]

    def _wide(self, name: str) -> Tensor:
        return Tensor(name, self.element * self.tokens * self.model.hidden)

    def _norm(self, name: str, read: Tensor, write: Tensor) -> Operation:
        statistics = FLOAT32 * self.tokens * (1 if self.model.gated else 2)  # mean and deviation
        kept = Tensor(f"{name}.statistics", statistics, differentiable=False)
        weights = self.element * self.model.norm_parameters
        return Operation(name, (read,), (write, kept), (read, kept), weights=weights)

    def _matrix(self, name: str, read: Tensor, write: Tensor, rows: int, columns: int) -> Operation:
        parameters = rows * columns + (0 if self.model.gated else columns)
        flops = 2 * self.tokens * rows * columns
        return Operation(name, (read,), (write,), (read,), flops=flops, weights=self.element * parameters)

    def _dropout(self, name: str, read: Tensor, write: Tensor) -> list[Operation]:
        if not self.model.dropout:
            return []
        mask = Tensor(name, read.size // self.element, differentiable=False)
        return [Operation(f"dropout.{name}", (read,), (write, mask), (mask,))]

    def _tiled(self, qkv: Tensor, mixed: Tensor) -> list[Operation]:
        rows = FLOAT32 * self.tokens * self.model.heads
        statistics = Tensor("attention.statistics", rows, differentiable=False)
        product = 2 * self.tokens * self.attended * self.model.hidden
        return [
            Operation(
                "attention",
                (qkv,),
                (mixed, statistics),
                (qkv, mixed, statistics),
                flops=2 * product,
                backward_extra_flops=product,
            )
        ]

    def _scored(self, qkv: Tensor, mixed: Tensor) -> list[Operation]:
        product = 2 * self.tokens * self.attended * self.model.hidden
        entries = self.tokens * self.attended * self.model.heads
        scores, softmax = Tensor("scores", self.element * entries), Tensor("softmax", self.element * entries)
        weights = Tensor("dropped", self.element * entries) if self.model.dropout else softmax
        return [
            Operation("scores", (qkv,), (scores,), (qkv,), flops=product),
            Operation("softmax", (scores,), (softmax,), (softmax,)),
            *self._dropout("mask", softmax, weights),
            Operation("mix", (weights, qkv), (mixed,), (weights, qkv), flops=product),
        ]


def architecture(preset: str, given: Mapping[str, int | None], dropout: bool | None) -> Architecture:
    """Return the architecture of a preset with changed hyper-parameters (see `changed`)."""
    return changed(PRESETS[preset], given, dropout)


def changed(model: SomeArchitecture, given: Mapping[str, int | None], dropout: bool | None) -> SomeArchitecture:
    """Return an architecture with changed hyper-parameters.

    Raises
    ------
    ValueError
        A number out of range, or heads that do not divide what they should.
    """
    changes: dict[str, Any] = {
        name: check.integer(name, value, minimum=1) for name, value in given.items() if value is not None
    }
    if "hidden" in changes:
        changes.setdefault("feedforward", 4 * changes["hidden"])
    if dropout is not None:
        changes["dropout"] = dropout
    model = replace(model, **changes)
    check.integer("layers", model.layers, maximum=1_000_000)
    if model.hidden % model.heads:
        multiple = model.heads * max(1, round(model.hidden / model.heads))
        raise ValueError(
            f"hidden {model.hidden} is not a multiple of heads {model.heads}; "
            f"give heads that divide it, or hidden {multiple}"
        )
    if model.key_heads and model.heads % model.key_heads:
        raise ValueError(f"key_heads {model.key_heads} do not divide the {model.heads} heads; give key_heads that do")
    return model


def _loss_time(logits: int, softmax: int, device: Device) -> float:
    """Seconds of a cross entropy: read the logits, write and read the softmax, write the gradient."""
    return device.time(0, 2 * logits + 2 * softmax)


def _name(preset: str, model: Architecture, batch: int, dtype: str, flash: bool, granularity: str) -> str:
    base = preset if model == PRESETS[preset] else f"transformer_l{model.layers}_h{model.hidden}"
    parts = [base, f"b{batch}", f"s{model.sequence}", dtype, "flash" if flash else "scores"]
    return "_".join(parts if granularity == "block" else [*parts, granularity]).replace("-", "_")
