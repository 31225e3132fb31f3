"""The configuration of a transformer, in one vocabulary for all families, and its parameters by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weight:
    """A group of parameters that are trained, frozen or quantized together.

    Attributes
    ----------
    rows, columns : int
        Inputs and outputs of a matrix; a vector has one row.
    copies : int
        Equal matrices: experts.
    biases : int
        Parameters beside the matrices.
    linear : bool
        Whether it is a matrix product, which adapters and quantization are for.
    """

    rows: int
    columns: int
    copies: int = 1
    biases: int = 0
    linear: bool = True

    @property
    def count(self) -> int:
        """Parameters in all."""
        return self.copies * self.rows * self.columns + self.biases


def vector(length: int) -> Weight:
    """Return the weights of a norm or a table that is no product."""
    return Weight(1, length, linear=False)


def table(rows: int, columns: int) -> Weight:
    """Return an embedding."""
    return Weight(rows, columns, linear=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Self or cross attention.

    Attributes
    ----------
    heads, key_heads, width, value_width : int
        Heads of queries, heads of keys and values, and the width of each head of queries and keys, and of values.
    biases : str
        Letters of the projections (``qkvo``) that have biases.
    query_norm : bool
        Norms over the heads of queries and of keys, one vector for all heads each.
    rotary : bool
    window : int or None
        Tokens that each token sees at most.
    buckets : int
        Buckets of its own table of relative position biases.
    query_rank, key_rank, rope : int
        Latent attention: ranks of the compressed queries (0: not compressed) and of keys and values, and the part of
        the width that is rotated, whose key all heads share. `key_rank` 0: no latent attention.
    biased : bool
        Whether scores have relative position biases, from its own table or that of the first block: they are stored.
    merged : bool
        Whether one product makes queries, keys and values: while a part of its output is saved, all of it is.
    head_major : bool
        Whether queries lie head by head in memory, after a concatenation or a copy: so does then the output of
        attention, whose rows are copied for the projection.
    """

    heads: int
    key_heads: int
    width: int
    value_width: int
    biases: str = ""
    query_norm: bool = False
    rotary: bool = True
    window: int | None = None
    buckets: int = 0
    query_rank: int = 0
    key_rank: int = 0
    rope: int = 0
    biased: bool = False
    merged: bool = False
    head_major: bool = False

    def weights(self, hidden: int) -> Iterator[tuple[str, Weight]]:
        """Yield the parameters by name."""
        queries, values = self.heads * self.width, self.heads * self.value_width
        if self.key_rank:
            yield from self._latent(hidden)
        else:
            for name, columns in (
                ("q", queries),
                ("k", self.key_heads * self.width),
                ("v", self.key_heads * self.value_width),
            ):
                yield name, Weight(hidden, columns, biases=columns if name in self.biases else 0)
        if self.query_norm:
            yield "q_norm", vector(self.width)
            yield "k_norm", vector(self.width)
        if self.buckets:
            yield "bias", table(self.buckets, self.heads)
        yield "o", Weight(values, hidden, biases=hidden if "o" in self.biases else 0)

    def _latent(self, hidden: int) -> Iterator[tuple[str, Weight]]:
        queries = self.heads * self.width
        if self.query_rank:
            yield "q_a", Weight(hidden, self.query_rank)
            yield "q_a_norm", vector(self.query_rank)
            yield "q_b", Weight(self.query_rank, queries)
        else:
            yield "q", Weight(hidden, queries)
        yield "kv_a", Weight(hidden, self.key_rank + self.rope)
        yield "kv_a_norm", vector(self.key_rank)
        yield "kv_b", Weight(self.key_rank, self.heads * (self.width - self.rope + self.value_width))


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedforward:
    """A multilayer perceptron: up, activation, down; optionally with a gate parallel to `up`."""

    inner: int
    gated: bool = True
    biases: bool = False

    def weights(self, hidden: int) -> Iterator[tuple[str, Weight]]:
        """Yield the parameters by name."""
        for name in ("gate", "up") if self.gated else ("up",):
            yield name, Weight(hidden, self.inner, biases=self.inner if self.biases else 0)
        yield "down", Weight(self.inner, hidden, biases=hidden if self.biases else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of gated perceptrons as experts, with additional experts that every token uses.

    Attributes
    ----------
    count, chosen, inner : int
        Experts, how many each token uses, and their inner width.
    shared : int
        Inner width of the perceptron that all tokens use; 0: there is none.
    shared_gate : bool
        Whether a gate of one output weighs that.
    router_biases : bool
        Whether the router has one correction per expert.
    router_copies : bool
        Whether the router reads, and saves, copies of the hidden states and of its weights in fp32.
    """

    count: int
    chosen: int
    inner: int
    shared: int = 0
    shared_gate: bool = False
    router_biases: bool = False
    router_copies: bool = False

    def weights(self, hidden: int) -> Iterator[tuple[str, Weight]]:
        """Yield the parameters by name."""
        yield "router", Weight(hidden, self.count, biases=self.count if self.router_biases else 0, linear=False)
        for name in ("gate", "up"):
            yield f"experts.{name}", Weight(hidden, self.inner, self.count)
        yield "experts.down", Weight(self.inner, hidden, self.count)
        if self.shared:
            for name, weight in Feedforward(inner=self.shared).weights(hidden):
                yield f"shared.{name}", weight
        if self.shared_gate:
            yield "shared_gate", Weight(hidden, 1, linear=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of a transformer.

    Attributes
    ----------
    attention, transform
    norm : int
        Vectors of a norm: 1 (RMSNorm, or LayerNorm without biases) or 2.
    order : {"pre", "post", "sandwich", "parallel", "shared"}
        Norms before the sublayers; after the residual sums; before and after the sublayers; attention and perceptron
        side by side with a norm each, or with one for both.
    cross : Attention or None
        Attention to an encoder, between the two others.
    first_norm : bool
        False where the norm before the attention is missing.
    dropout : bool
        Whether what a sublayer adds is dropped out, with a saved mask.
    """

    attention: Attention
    transform: Feedforward | Experts
    norm: int = 1
    order: str = "pre"
    cross: Attention | None = None
    first_norm: bool = True
    dropout: bool = False

    def weights(self, hidden: int) -> dict[str, Weight]:
        """Return the parameters by name, in the order of the forward."""
        found: dict[str, Weight] = {}
        parts: list[tuple[str, Attention | Feedforward | Experts]] = [("attention", self.attention)]
        parts += [("cross", self.cross)] if self.cross is not None else []
        for part, layer in [*parts, ("mlp", self.transform)]:
            normed = (self.first_norm if part == "attention" else self.order != "shared") and self.order != "post"
            if normed:
                found[f"{part}_norm"] = vector(self.norm * hidden)
            found |= {f"{part}.{name}": weight for name, weight in layer.weights(hidden)}
            if self.order in ("post", "sandwich"):
                found[f"{part}_post_norm"] = vector(self.norm * hidden)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack that turns ids, patches or frames into hidden states: embeddings, blocks, a last norm.

    Attributes
    ----------
    blocks : tuple of Block
        Every block of the model; equal neighbours become one stage.
    embeddings : tuple of (str, Weight)
        Tables and convolutions.
    kind : {"tokens", "patches", "frames"}
        What goes in.
    length : int or None
        Tokens of every sequence where the model fixes them.
    embedding_norm, last_norm : int
        Vectors of a norm after the embeddings, and after the blocks; 0: there is none.
    dropout : bool
        Whether the embeddings are dropped out.
    """

    blocks: tuple[Block, ...]
    embeddings: tuple[tuple[str, Weight], ...]
    kind: str = "tokens"
    length: int | None = None
    embedding_norm: int = 0
    last_norm: int = 1
    dropout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer.

    Attributes
    ----------
    name, family : str
    hidden, vocabulary : int
        `vocabulary` is the number of outputs of each token (0: outputs are classes).
    decoder : Stack
        The only stack, or that which reads the encoder.
    encoder : Stack or None
    positions : int
        Longest sequence; 0: any.
    tied : bool
        Whether the logits use the table of the tokens.
    head : tuple of (str, Weight)
        Parameters behind the last norm, in order; the last one makes the outputs, unless it is tied.
    classes : int
        Outputs of a sequence, where there is no vocabulary.
    notes : tuple of str
        What of the configuration is left out.
    """

    name: str
    family: str
    hidden: int
    vocabulary: int
    decoder: Stack
    encoder: Stack | None = None
    positions: int = 0
    tied: bool = False
    head: tuple[tuple[str, Weight], ...] = ()
    classes: int = 0
    notes: tuple[str, ...] = ()

    def weights(self) -> Iterator[tuple[str, Weight]]:
        """Yield every group of parameters by its full name, such as ``layers.3.attention.q``."""
        for prefix, stack in self.stacks():
            for name, weight in stack.embeddings:
                yield prefix + name, weight
            if stack.embedding_norm:
                yield f"{prefix}embedding_norm", vector(stack.embedding_norm * self.hidden)
            for index, block in enumerate(stack.blocks):
                for name, weight in block.weights(self.hidden).items():
                    yield f"{prefix}layers.{index}.{name}", weight
            if stack.last_norm:
                yield f"{prefix}norm", vector(stack.last_norm * self.hidden)
        yield from self.head

    def stacks(self) -> tuple[tuple[str, Stack], ...]:
        """Return the stacks with the prefixes of their names."""
        if self.encoder is None:
            return (("", self.decoder),)
        return (("encoder.", self.encoder), ("decoder.", self.decoder))

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return sum(weight.count for _, weight in self.weights())
