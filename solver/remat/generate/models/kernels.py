"""The kernels of a model's stages, for a batch and a sequence length, with the values that their backwards read.

Kernels are those of fused implementations. A norm saves its input and its statistics, a product its input, a gate both
factors. Tiled attention saves queries, keys, values, its output and one number per head and token (Dao 2023). Frozen
products save nothing, and have no weight gradient. An adapter of rank r saves the input and r numbers per token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from remat.generate.models.architecture import Attention, Block, Experts, Feedforward, Model, Stack, Weight, vector
from remat.generate.models.tuning import Treatment, Tuning
from remat.generate.networks.operations import Operation, Tensor

FLOAT32 = 4
TOKEN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The shape of a batch, and the implementation of kernels.

    Attributes
    ----------
    batch, sequence : int
        Sequences, and tokens of each; of a model with an encoder, of either side.
    element : int
        Bytes of a number.
    flash : bool
        Attention in tiles, without stored scores (never of attention with relative biases).
    chunks : int
        Parts in which the logits and their loss are computed, with their gradient; 1: all at once.
    """

    batch: int
    sequence: int
    element: int = 2
    flash: bool = True
    chunks: int = 1


@dataclass(slots=True)
class Amounts:
    """Parameters of a part of a model.

    Attributes
    ----------
    parameters, weights : int
        How many (without adapters), and bytes of all, adapters included.
    trained, factors : int
        How many are trained, and the rows and columns of their matrices.
    largest : int
        The most of them in one matrix.
    """

    parameters: int = 0
    weights: int = 0
    trained: int = 0
    factors: int = 0
    largest: int = 0

    def add(self, weight: Weight, treatment: Treatment, element: int) -> None:
        """Count a group of parameters."""
        adapter = treatment.adapter(weight)
        self.parameters += weight.count
        self.weights += treatment.bytes(weight, element) + element * adapter
        self.trained += treatment.trained_parameters(weight)
        if treatment.trained:
            self.factors += weight.copies * (weight.rows + weight.columns) + weight.biases
            self.largest = max(self.largest, weight.rows * weight.columns)
        else:
            self.largest = max(self.largest, treatment.rank * max(weight.rows, weight.columns))
            self.factors += weight.copies * bool(treatment.rank) * (weight.rows + weight.columns + 2 * treatment.rank)


@dataclass(frozen=True, slots=True)
class Part:
    """Equal neighbouring stages of a model.

    Attributes
    ----------
    name : str
    stack : int
        0, or 1 for the decoder of a model with an encoder.
    block : Block or None
        None for embeddings and the head.
    repeat : int
        How many are equal.
    weights, treatments : mapping
        Parameters by name, and what becomes of them.
    live : bool
        Whether something that comes before is trained.
    amounts : Amounts
        Amounts of one stage.
    """

    name: str
    stack: int
    block: Block | None
    repeat: int
    weights: Mapping[str, Weight]
    treatments: Mapping[str, Treatment]
    live: bool
    amounts: Amounts


def parts_of(model: Model, tuning: Tuning, element: int) -> list[Part]:
    """Return the parts of a model in the order of its forward."""
    found: list[Part] = []
    live = False
    for number, (prefix, stack) in enumerate(model.stacks()):
        named = dict(stack.embeddings)
        if stack.embedding_norm:
            named["embedding_norm"] = vector(stack.embedding_norm * model.hidden)
        embedding = _part(f"{prefix}embedding", number, None, named, (tuning, prefix, element, live))
        found.append(embedding)
        live = live or embedding.amounts.trained > 0
        known: dict[tuple[Block, bool], Part] = {}
        for index, block in enumerate(stack.blocks):
            part = known.get((block, live))
            if part is None or tuning.by_layer:
                own = (tuning, f"{prefix}layers.{index}.", element, live)
                part = _part(f"{prefix}block", number, block, block.weights(model.hidden), own)
                known[block, live] = part
            if not _joined(found, part):
                found.append(part)
            live = live or part.amounts.trained > 0
        if stack is not model.decoder and stack.last_norm:
            last = {"norm": vector(stack.last_norm * model.hidden)}
            found.append(_part(f"{prefix}norm", number, None, last, (tuning, prefix, element, live)))
            live = live or found[-1].amounts.trained > 0
    prefix, stack = model.stacks()[-1]
    norm = {f"{prefix}norm": vector(stack.last_norm * model.hidden)} if stack.last_norm else {}
    return [
        *found,
        _part("head", len(model.stacks()) - 1, None, {**norm, **dict(model.head)}, (tuning, "", element, live)),
    ]


def _part(
    name: str,
    stack: int,
    block: Block | None,
    weights: Mapping[str, Weight],
    how: tuple[Tuning, str, int, bool],
) -> Part:
    tuning, prefix, element, live = how
    treatments = {key: tuning.of(prefix + key, weight) for key, weight in weights.items()}
    amounts = Amounts()
    for key, weight in weights.items():
        amounts.add(weight, treatments[key], element)
    return Part(name, stack, block, 1, weights, treatments, live, amounts)


def _joined(found: list[Part], part: Part) -> bool:
    """Count a part with the one before, where both are equal."""
    last = found[-1]
    same = (last.block, last.treatments, last.live, last.stack) == (part.block, part.treatments, part.live, part.stack)
    if part.block is None or not same:
        return False
    found[-1] = replace(last, repeat=last.repeat + 1)
    return True


@dataclass
class Kernels:
    """Writes the operations of one stage.

    Attributes
    ----------
    model, setting, part
    at : str
        What the names of its tensors begin with.
    memory : Tensor or None
        What the encoder makes, for the blocks of a decoder.
    tied_trained : bool
        Whether the table that the head shares is trained.
    made : list of Operation
    """

    model: Model
    setting: Setting
    part: Part
    at: str = ""
    memory: Tensor | None = None
    tied_trained: bool = False
    made: list[Operation] = field(default_factory=list)

    @property
    def stack(self) -> Stack:
        """The stack of the part."""
        return self.model.stacks()[self.part.stack][1]

    @property
    def length(self) -> int:
        """Tokens of a sequence."""
        return self.stack.length or self.setting.sequence

    @property
    def tokens(self) -> int:
        """Tokens of the batch."""
        return self.setting.batch * self.length

    @property
    def wide(self) -> int:
        """Bytes of hidden states of the batch."""
        return self.setting.element * self.tokens * self.model.hidden

    # --- pieces -------------------------------------------------------------------------------------------------------

    def op(
        self,
        name: str,
        reads: Sequence[Tensor],
        size: int,
        *,
        saves: Sequence[Tensor] = (),
        saves_output: bool = False,
        kept: Sequence[tuple[str, int]] = (),
        weight: str = "",
        flops: int = 0,
        extra: int = 0,
        unpacked: int = 0,
        gathered: bool = False,
        passes: bool = False,
    ) -> Tensor:
        """Append an operation and return its output. `kept` is written only for its backward."""
        element, trained, stored = self.setting.element, 0, 0
        if weight:
            group, treatment = self.part.weights[weight], self.part.treatments[weight]
            trained = element * treatment.trained_parameters(group)
            stored = treatment.bytes(group, element) + element * treatment.adapter(group)
        live = trained > 0 or any(tensor.differentiable for tensor in reads)
        output = Tensor(self.at + name, size, live)
        aside = tuple(Tensor(f"{self.at}{name}.{each}", length, differentiable=False) for each, length in kept)
        saved = (*saves, *((output,) if saves_output else ()), *aside) if live else ()
        self.made.append(
            Operation(
                self.at + name,
                tuple(reads),
                (output, *aside),
                saved,
                flops=flops,
                weights=stored,
                gradient=trained,
                unpacked=unpacked,
                gathered=gathered,
                backward_extra_flops=extra if live else 0,
                passes_gradient=passes,
            )
        )
        return output

    def linear(self, name: str, read: Tensor, tokens: int | None = None) -> Tensor:
        """Multiply by a matrix, with its adapter."""
        weight, treatment = self.part.weights[name], self.part.treatments[name]
        many, element = self.tokens if tokens is None else tokens, self.setting.element
        flops = 2 * many * weight.rows * weight.columns
        beside = 2 * many * treatment.rank * (weight.rows + weight.columns)
        learns = treatment.trained or treatment.rank > 0
        return self.op(
            name,
            [read],
            element * many * weight.columns,
            saves=[read] if learns else (),
            kept=[("low", element * many * treatment.rank)] if treatment.rank else (),
            weight=name,
            flops=flops + beside,
            extra=-flops if treatment.rank else 0,  # the frozen matrix has no gradient, but its adapter has
            unpacked=element * weight.rows * weight.columns if treatment.packed else 0,
        )

    def norm(self, name: str, read: Tensor, tokens: int | None = None, groups: int = 1) -> Tensor:
        """Normalise; LayerNorm keeps mean and deviation, RMSNorm the latter."""
        vectors = 2 if self.part.weights[name].columns == 2 * self.model.hidden else 1
        many = self.tokens if tokens is None else tokens
        statistics = FLOAT32 * many * groups * vectors
        return self.op(name, [read], read.size, saves=[read], kept=[("statistics", statistics)], weight=name)

    def dropped(self, name: str, read: Tensor, dropout: bool) -> Tensor:
        """Apply dropout if the model has it."""
        if not dropout:
            return read
        return self.op(f"{name}.dropout", [read], read.size, kept=[("mask", read.size // self.setting.element)])

    def sum(self, name: str, *reads: Tensor) -> Tensor:
        """Add up; gradients pass through."""
        return self.op(name, reads, reads[0].size, passes=True)

    # --- sublayers ----------------------------------------------------------------------------------------------------

    def attention(self, part: str, read: Tensor, layer: Attention, memory: Tensor | None = None) -> Tensor:
        """Project, attend and project back."""
        element, tokens = self.setting.element, self.tokens
        source = read if memory is None else memory
        others = tokens if memory is None else memory.size // (element * self.model.hidden)
        seen = others // self.setting.batch
        held: tuple[Tensor, ...] = ()
        if layer.key_rank:
            q, k, v = self._latent(part, read, layer)
        else:
            q = self.linear(f"{part}.q", read)
            k = self.linear(f"{part}.k", source, others)
            v = self.linear(f"{part}.v", source, others)
            held = (q, k) if layer.merged else ()  # the values are a view of the tensor that has these, too
            if layer.query_norm:
                q = self.norm(f"{part}.q_norm", q, groups=layer.heads)
                k = self.norm(f"{part}.k_norm", k, others, groups=layer.key_heads)
            if layer.rotary:
                q = self.op(f"{part}.q_rotary", [q], q.size)
                k = self.op(f"{part}.k_rotary", [k], k.size)
        seen = min(seen, layer.window or seen)
        scoring = 2 * tokens * seen * layer.heads * layer.width
        mixing = 2 * tokens * seen * layer.heads * layer.value_width
        size = element * tokens * layer.heads * layer.value_width
        if self.setting.flash and not layer.biased:
            rows = FLOAT32 * tokens * layer.heads
            mixed = self.op(
                f"{part}.attend",
                [q, k, v],
                size,
                saves=[q, k, v, *held],
                saves_output=True,
                kept=[("rows", rows)],
                flops=scoring + mixing,
                extra=scoring,
            )
        else:
            mixed = self._scored(part, (q, k, v, *held), layer, (seen, scoring, mixing, size))
        if layer.head_major:
            mixed = self.op(f"{part}.rows", [mixed], size)
        return self.linear(f"{part}.o", mixed)

    def _scored(
        self, part: str, given: tuple[Tensor, ...], layer: Attention, figures: tuple[int, int, int, int]
    ) -> Tensor:
        """Attend with stored scores."""
        (q, k, v, *held), (seen, scoring, mixing, size) = given, figures
        entries = self.setting.element * self.tokens * seen * layer.heads
        scores = self.op(f"{part}.scores", [q, k], entries, saves=[q, k], flops=scoring)
        if layer.buckets:
            scores = self.op(f"{part}.bias", [scores], entries, weight=f"{part}.bias", gathered=True)
        elif layer.biased:
            scores = self.sum(f"{part}.bias", scores)
        softmax = self.op(f"{part}.softmax", [scores], entries, saves_output=True)
        return self.op(f"{part}.mix", [softmax, v], size, saves=[softmax, v, *held], flops=mixing)

    def _latent(self, part: str, read: Tensor, layer: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Make queries, keys and values from their compressed forms; values stay where they were unpacked."""
        per_token = self.setting.element * self.tokens
        if layer.query_rank:
            low = self.norm(f"{part}.q_a_norm", self.linear(f"{part}.q_a", read))
            q = self.linear(f"{part}.q_b", low)
        else:
            q = self.linear(f"{part}.q", read)
        q = self.op(f"{part}.q_rotary", [q], q.size)
        compressed = self.linear(f"{part}.kv_a", read)
        low = self.op(
            f"{part}.kv_a_norm",
            [compressed],
            per_token * layer.key_rank,
            saves=[compressed],
            kept=[("statistics", FLOAT32 * self.tokens)],
            weight=f"{part}.kv_a_norm",
        )
        unpacked = self.linear(f"{part}.kv_b", low)
        k = self.op(f"{part}.keys", [unpacked, compressed], per_token * layer.heads * layer.width)
        return q, k, unpacked

    def feedforward(self, part: str, read: Tensor, layer: Feedforward, tokens: int | None = None) -> Tensor:
        """Up, activation, down."""
        up = self.linear(f"{part}.up", read, tokens)
        if layer.gated:
            gate = self.linear(f"{part}.gate", read, tokens)
            active = self.op(f"{part}.activation", [gate], gate.size, saves=[gate])
            inner = self.op(f"{part}.product", [active, up], up.size, saves=[active, up])
        else:
            inner = self.op(f"{part}.activation", [up], up.size, saves=[up])
        return self.linear(f"{part}.down", inner, tokens)

    def experts(self, part: str, read: Tensor, layer: Experts) -> Tensor:
        """Send each token to its experts, all with the same number of tokens, and add up their results."""
        picked = self.tokens * layer.chosen
        rows = self.setting.element * picked * self.model.hidden
        router = self.part.weights[f"{part}.router"]
        logits = self.op(
            f"{part}.router",
            [read],
            FLOAT32 * self.tokens * layer.count,
            saves=[] if layer.router_copies else [read],
            kept=[("copies", FLOAT32 * (self.tokens + router.columns) * router.rows)] if layer.router_copies else (),
            weight=f"{part}.router",
            flops=2 * self.tokens * router.rows * router.columns,
        )
        shares = self.op(f"{part}.top", [logits], FLOAT32 * picked, kept=[("probabilities", logits.size)])
        gathered = self.op(f"{part}.gather", [read], rows, kept=[("indices", TOKEN * picked)])
        down = self.feedforward(f"{part}.experts", gathered, Feedforward(inner=layer.inner), picked)
        weighed = self.op(f"{part}.weigh", [down, shares], rows, saves=[down, shares])
        mixed = self.op(f"{part}.combine", [weighed], self.wide)
        if not layer.shared:
            return mixed
        shared = self.feedforward(f"{part}.shared", read, Feedforward(inner=layer.shared))
        if layer.shared_gate:
            shared = self.op(
                f"{part}.shared_gate",
                [shared, read],
                shared.size,
                saves=[shared, read],
                weight=f"{part}.shared_gate",
                flops=2 * self.tokens * self.model.hidden,
            )
        return self.sum(f"{part}.both", mixed, shared)

    def transform(self, read: Tensor, layer: Feedforward | Experts) -> Tensor:
        """Run the perceptron, or the experts."""
        return self.experts("mlp", read, layer) if isinstance(layer, Experts) else self.feedforward("mlp", read, layer)

    # --- stages -------------------------------------------------------------------------------------------------------

    def block(self, read: Tensor) -> Tensor:
        """Run a block; return its output."""
        block = self.part.block
        assert block is not None
        if block.order in ("parallel", "shared"):
            return self._parallel(read, block)
        x = self._sublayer("attention", read, block)
        if block.cross is not None:
            x = self._sublayer("cross", x, block)
        return self._sublayer("mlp", x, block)

    def _sublayer(self, part: str, read: Tensor, block: Block) -> Tensor:
        normed = self.norm(f"{part}_norm", read) if f"{part}_norm" in self.part.weights else read
        if part == "mlp":
            made = self.transform(normed, block.transform)
        elif part == "cross":
            assert block.cross is not None
            made = self.attention(part, normed, block.cross, self.memory)
        else:
            made = self.attention(part, normed, block.attention)
        if block.order == "sandwich":
            made = self.norm(f"{part}_post_norm", made)
        summed = self.sum(f"{part}.residual", read, self.dropped(part, made, block.dropout))
        return self.norm(f"{part}_post_norm", summed) if block.order == "post" else summed

    def _parallel(self, read: Tensor, block: Block) -> Tensor:
        normed = self.norm("attention_norm", read)
        again = normed if block.order == "shared" else self.norm("mlp_norm", read)
        attended = self.dropped("attention", self.attention("attention", normed, block.attention), block.dropout)
        made = self.dropped("mlp", self.transform(again, block.transform), block.dropout)
        return self.sum("residual", read, attended, made)

    def source(self) -> Tensor:
        """Return the input of a stack: ids, pixels of patches, or frames."""
        weights, stack = self.part.weights, self.stack
        if stack.kind == "patches":
            pixels = self.setting.batch * (self.length - 1) * weights["patches"].rows
            return Tensor(f"{self.at}pixels", self.setting.element * pixels, differentiable=False)
        if stack.kind == "frames":
            bins = weights["conv1"].rows // 3
            frames = self.setting.batch * 2 * self.length * bins
            return Tensor(f"{self.at}frames", self.setting.element * frames, differentiable=False)
        return Tensor(f"{self.at}ids", TOKEN * self.tokens, differentiable=False)

    def embedding(self, source: Tensor) -> Tensor:
        """Look up or convolve, add positions, normalise, drop out."""
        element, weights = self.setting.element, self.part.weights
        if self.stack.kind == "patches":
            flops = 2 * self.setting.batch * (self.length - 1) * weights["patches"].rows * self.model.hidden
            x = self.op("patches", [source], self.wide, saves=[source], weight="patches", flops=flops)
        elif self.stack.kind == "frames":
            x = self._convolved("conv2", self._convolved("conv1", source, 2), 1)
        elif "embedding" in weights:
            x = self.op("lookup", [source], self.wide, saves=[source], weight="embedding", gathered=True)
        else:  # the table of the encoder, whose gradient it adds to
            x = self.op("lookup", [source], self.wide, saves=[source])
        for name in ("class", "positions", "types"):
            if name in weights:
                rows = 1 if name == "class" else self.length
                places = self.op(name, [], element * rows * self.model.hidden, weight=name, gathered=True)
                x = self.sum(f"{name}.sum", x, places)
        if self.stack.embedding_norm:
            x = self.norm("embedding_norm", x)
        return self.dropped("embedding", x, self.stack.dropout)

    def _convolved(self, name: str, read: Tensor, stride: int) -> Tensor:
        weight, many = self.part.weights[name], self.tokens * stride
        size = self.setting.element * many * weight.columns
        flops = 2 * many * weight.rows * weight.columns
        x = self.op(name, [read], size, saves=[read], weight=name, flops=flops)
        return self.op(f"{name}.gelu", [x], size, saves=[x])

    def head(self, read: Tensor, *, chunked: bool = False) -> Tensor:
        """The last norm and the head; logits only if they are not computed in chunks."""
        norm = f"{self.model.stacks()[-1][0]}norm"
        x = self.norm(norm, read) if norm in self.part.weights else read
        names = [name for name, _ in self.model.head]
        if not self.model.vocabulary:
            return self._classes(x, names)
        if "transform" in names:
            x = self.linear("transform", x)
            x = self.op("gelu", [x], x.size, saves=[x])
            x = self.norm("transform_norm", x)
        return x if chunked else self.logits(x)

    def logits(self, read: Tensor) -> Tensor:
        """Compute the logits, with the token embedding if it is shared."""
        size = self.setting.element * self.tokens * self.model.vocabulary
        weight = "head" if "head" in self.part.weights else "decoder" if "decoder" in self.part.weights else ""
        flops = 2 * self.tokens * self.model.hidden * self.model.vocabulary
        learns = bool(weight) and self.part.treatments[weight].trained
        made = self.op(
            "logits", [read], size, saves=[read] if learns or self.tied_trained else (), weight=weight, flops=flops
        )
        if self.model.tied:
            last, shared = self.made[-1], self.setting.element * self.model.vocabulary * self.model.hidden
            gradient = (shared if self.tied_trained else 0) + last.weight_gradient
            self.made[-1] = Operation(
                last.name,
                last.reads,
                last.writes,
                last.saves,
                flops=flops,
                weights=shared + last.weights,
                gradient=gradient,
            )
        return made

    def _classes(self, read: Tensor, names: Sequence[str]) -> Tensor:
        """Use the first token of each sequence."""
        batch, x = self.setting.batch, read
        for name in names:
            if name == "transform_norm":
                x = self.norm(name, x, batch)
                continue
            weight = self.part.weights[name]
            size = self.setting.element * batch * weight.columns
            flops = 2 * batch * weight.rows * weight.columns
            x = self.op(name, [x], size, saves=[x], weight=name, flops=flops)
        if not names:
            x = self.op("first", [x], self.setting.element * batch * self.model.hidden)
        return x

    def loss(self) -> tuple[int, int]:
        """Return the bytes that a loss needs in addition to logits and their gradient, and the work of its products."""
        classes = self.model.vocabulary * self.tokens or self.model.classes * self.setting.batch
        probabilities = FLOAT32 * classes
        if self.setting.chunks == 1 or not self.model.vocabulary:
            return probabilities, 0
        part = ceil(self.tokens / self.setting.chunks) * self.model.vocabulary
        flops = 2 * classes * self.model.hidden
        return part * (FLOAT32 + 2 * self.setting.element), flops
