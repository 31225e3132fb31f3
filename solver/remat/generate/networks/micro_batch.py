"""One micro-batch of a transformer's training step, kernel by kernel; `transformer_step` repeats it.

Activations, arithmetic and parameters are those of `transformer` (Korthikanti et al. 2022; Narayanan et al. 2021). Each
kernel is a task. The kernels are published ones:

- Llama style (`Architecture.gated`): RMSNorm of Zhang and Sennrich 2019 (mean square, root, scaling, weight); rotary
  embeddings of Su et al. 2021, equation 34 (a rotated copy, two products, a sum); SwiGLU (Shazeer 2020); grouped
  queries, with one key and value per group (Ainslie et al. 2023).
- GPT style: LayerNorm, biases, GELU, dropout, one kernel each.
- Tiled attention backward: FlashAttention-2 (Dao 2023, algorithm 2). It computes row sums of the output times its
  gradient, the products with recomputed scores, and the gradient of the queries from its fp32 sums. Gradients of keys
  and values are added up over the heads of a group.
- Gradients of norm weights: sums over parts of the tokens, then over the parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from remat.generate.networks.kernels import Kernels
from remat.generate.networks.operations import Device
from remat.generate.networks.transformer import FLOAT32, TOKEN, Architecture

PARTS = 16
"""Parts of the tokens over which the gradients of a norm's weights are first added up."""


class MicroBatch(Kernels):
    """The kernels, values and parameters of one micro-batch; ``ids`` are its token ids."""

    def __init__(self, model: Architecture, *, batch: int, element: int, flash: bool, device: Device) -> None:
        super().__init__(device, element)
        self.model, self.batch, self.flash = model, batch, flash
        self.tokens = batch * model.sequence
        self.sizes["ids"] = TOKEN * self.tokens
        self._embed()
        for layer in range(model.layers):
            self._attend(f"{layer}.", self._stream(layer))
            self._transform(f"{layer}.", self._stream(layer + 1))
        self._head(self._stream(model.layers))
        self.phase = "backward"
        self._head_backward(self._stream(model.layers))
        for layer in reversed(range(model.layers)):
            self._transform_backward(f"{layer}.", f"d.{self._stream(layer + 1)}")
            self._attend_backward(f"{layer}.", self._stream(layer))
        self._embed_backward()
        self.rename()

    # --- kernels ------------------------------------------------------------------------------------------------------

    def _stream(self, layer: int) -> str:
        """Name the residual stream in front of a layer."""
        return f"{layer}.x"

    @property
    def _wide(self) -> int:
        return self.element * self.tokens * self.model.hidden

    @property
    def _groups(self) -> int:
        """Bytes of all keys, or of all values."""
        return self.element * self.tokens * self.model.key_width

    def _matrix(self, name: str, read: str, write: str, rows: int, columns: int) -> None:
        self.parameter(name, rows * columns, 0 if self.model.gated else columns)
        size = self.element * self.tokens * columns
        self.add(name, [read], {write: size}, flops=2 * self.tokens * rows * columns, weight=name)

    def _matrix_backward(self, name: str, read: str, arriving: Sequence[str], write: str) -> None:
        rows = self.sizes[read] // (self.element * self.tokens)
        columns = sum(self.sizes[value] for value in arriving) // (self.element * self.tokens)
        flops = 2 * self.tokens * rows * columns
        if f"{name}.bias" in self.gradients:
            self.add(f"{name}.db", arriving, {}, gradient=f"{name}.bias")
        self.add(f"{name}.dW", [*arriving, read], {}, flops=flops, gradient=name)
        self.add(f"{name}.dX", arriving, {write: self.sizes[read]}, flops=flops, weight=name)

    def _norm(self, name: str, read: str, write: str) -> None:
        rows = FLOAT32 * self.tokens
        self.parameter(name, self.model.norm_parameters)
        if not self.model.gated:
            self.add(name, [read], {write: self._wide, f"{name}.statistics": 2 * rows}, weight=name)
            return
        self.add(f"{name}.square", [read], {f"{name}.mean": rows})
        self.add(f"{name}.root", [f"{name}.mean"], {f"{name}.statistics": rows})
        self.add(f"{name}.scale", [read, f"{name}.statistics"], {f"{name}.scaled": self._wide})
        self.add(f"{name}.weigh", [f"{name}.scaled"], {write: self._wide}, weight=name)

    def _norm_backward(self, name: str, read: str, arriving: str, write: str) -> None:
        statistics, parts = f"{name}.statistics", f"{name}.parts"
        size = PARTS * FLOAT32 * self.model.norm_parameters
        self.add(f"{name}.sums", [arriving, read, statistics], {parts: size})
        self.add(f"{name}.dW", [parts], {}, gradient=name)
        if not self.model.gated:
            self.add(f"{name}.dX", [arriving, read, statistics], {write: self._wide}, weight=name)
            return
        scaled, dot = f"d.{name}.scaled", f"{name}.dot"
        self.add(f"{name}.weigh.dX", [arriving], {scaled: self._wide}, weight=name)
        self.add(f"{name}.dots", [scaled, read], {dot: FLOAT32 * self.tokens})
        self.add(f"{name}.dX", [scaled, read, statistics, dot], {write: self._wide})

    def _dropout(self, name: str, read: str, write: str) -> None:
        size = self.sizes[read]
        self.add(name, [read], {write: size, f"{name}.mask": size // self.element})

    def _dropout_backward(self, name: str, arriving: str, write: str) -> None:
        self.add(f"{name}.dX", [arriving, f"{name}.mask"], {write: self.sizes[arriving]})

    # --- embedding and head -------------------------------------------------------------------------------------------

    def _embed(self) -> None:
        model, element, first = self.model, self.element, self._stream(0)
        self.parameter("embedding", model.vocabulary * model.hidden)
        looked_up = self.sizes["ids"] + 2 * self._wide
        if model.rotary:
            self.add("embedding", ["ids"], {first: self._wide}, weight="embedding", traffic=looked_up)
            self.add("angles", [], {"angles": FLOAT32 * model.sequence * model.head_width // 2})
            for name in ("cos", "sin"):
                self.add(name, ["angles"], {name: element * model.sequence * model.head_width})
            return
        self.parameter("positions", model.sequence * model.hidden)
        summed = "summed" if model.dropout else first
        table = element * model.sequence * model.hidden
        self.add("embedding", ["ids"], {"words": self._wide}, weight="embedding", traffic=looked_up)
        self.add("positions", [], {"places": table}, weight="positions")
        self.add("embedding.sum", ["words", "places"], {summed: self._wide})
        if model.dropout:
            self._dropout("dropout", summed, first)

    def _embed_backward(self) -> None:
        arriving = f"d.{self._stream(0)}"
        if not self.model.rotary:
            if self.model.dropout:
                self._dropout_backward("dropout", arriving, "d.summed")
                arriving = "d.summed"
            self.add("positions.dW", [arriving], {}, gradient="positions")
        self.add("embedding.dW", [arriving, "ids"], {}, gradient="embedding")

    @property
    def _table(self) -> str:
        """Name the parameter that the logits read."""
        return "embedding" if self.model.tied else "head"

    def _head(self, read: str) -> None:
        model, entries = self.model, self.tokens * self.model.vocabulary
        self._norm("norm", read, "normed")
        if not model.tied:
            self.parameter("head", model.vocabulary * model.hidden)
        flops = 2 * entries * model.hidden
        self.add("head", ["normed"], {"logits": self.element * entries}, flops=flops, weight=self._table)
        self.add("softmax", ["logits"], {"logarithms": FLOAT32 * entries})
        self.add("loss", ["logarithms", "ids"], {"loss": FLOAT32})

    def _head_backward(self, read: str) -> None:
        entries = self.tokens * self.model.vocabulary
        flops = 2 * entries * self.model.hidden
        self.add("loss.dX", ["ids"], {"d.logarithms": FLOAT32 * entries})
        self.add("softmax.dX", ["logarithms", "d.logarithms"], {"d.logits": self.element * entries})
        self.add("head.dW", ["d.logits", "normed"], {}, flops=flops, gradient=self._table)
        self.add("head.dX", ["d.logits"], {"d.normed": self._wide}, flops=flops, weight=self._table)
        self._norm_backward("norm", read, "d.normed", f"d.{read}")

    # --- attention ----------------------------------------------------------------------------------------------------

    def _attend(self, at: str, read: str) -> None:
        """From the layer's input to the middle of its residual stream."""
        model = self.model
        self._norm(f"{at}norm1", read, f"{at}n1")
        if model.gated:
            for name in ("q", "k", "v"):
                columns = model.hidden if name == "q" else model.key_width
                self._matrix(f"{at}{name}", f"{at}n1", f"{at}{name}", model.hidden, columns)
        else:
            self._matrix(f"{at}qkv", f"{at}n1", f"{at}qkv", model.hidden, model.hidden + 2 * model.key_width)
        if model.rotary:
            for name in ("q", "k"):
                self._rotate(at, name)
        if self.flash:
            rows = FLOAT32 * self.tokens * model.heads
            written = {f"{at}mixed": self._wide, f"{at}rows": rows}
            self.add(f"{at}attention", self._attended(at), written, flops=2 * self._product)
        else:
            self._attend_by_scores(at)
        self._matrix(f"{at}project", f"{at}mixed", f"{at}projected", model.hidden, model.hidden)
        added = f"{at}projected"
        if model.dropout:
            self._dropout(f"{at}dropout1", added, f"{at}dropped1")
            added = f"{at}dropped1"
        self.sum(f"{at}residual1", [read, added], f"{at}middle")

    def _attend_backward(self, at: str, read: str) -> None:
        model = self.model
        arriving = f"{at}d.middle"
        if model.dropout:
            self._dropout_backward(f"{at}dropout1", arriving, f"{at}d.projected")
            arriving = f"{at}d.projected"
        self._matrix_backward(f"{at}project", f"{at}mixed", [arriving], f"{at}d.mixed")
        if self.flash:
            self._tiles_backward(at)
        else:
            self._scores_backward(at)
        if model.rotary:
            for name in ("q", "k"):
                self._rotate_backward(at, name)
        if model.gated:
            parts = [f"{at}{name}.d.n1" for name in ("q", "k", "v")]
            for name, part in zip(("q", "k", "v"), parts, strict=True):
                self._matrix_backward(f"{at}{name}", f"{at}n1", [f"{at}d.{name}"], part)
            self.sum(f"{at}n1.sum", parts, f"{at}d.n1")
        else:
            self._matrix_backward(f"{at}qkv", f"{at}n1", [f"{at}d.{name}" for name in ("q", "k", "v")], f"{at}d.n1")
        self._norm_backward(f"{at}norm1", read, f"{at}d.n1", f"{at}norm1.d.x")
        self.sum(f"{at}x.sum", [f"{at}d.middle", f"{at}norm1.d.x"], f"d.{read}")

    def _rotate(self, at: str, name: str) -> None:
        size = self.sizes[f"{at}{name}"]
        self.add(f"{at}{name}.turn", [f"{at}{name}"], {f"{at}{name}.turned": size})
        self.add(f"{at}{name}.cos", [f"{at}{name}", "cos"], {f"{at}{name}.even": size})
        self.add(f"{at}{name}.sin", [f"{at}{name}.turned", "sin"], {f"{at}{name}.odd": size})
        self.sum(f"{at}{name}.rotate", [f"{at}{name}.even", f"{at}{name}.odd"], f"{at}{name}.rotated")

    def _rotate_backward(self, at: str, name: str) -> None:
        arriving = f"{at}d.{name}.rotated"
        size = self.sizes[arriving]
        self.add(f"{at}{name}.sin.dX", [arriving, "sin"], {f"{at}d.{name}.turned": size})
        self.add(f"{at}{name}.turn.dX", [f"{at}d.{name}.turned"], {f"{at}d.{name}.odd": size})
        self.add(f"{at}{name}.cos.dX", [arriving, "cos"], {f"{at}d.{name}.even": size})
        self.sum(f"{at}{name}.sum", [f"{at}d.{name}.even", f"{at}d.{name}.odd"], f"{at}d.{name}")

    def _attended(self, at: str) -> list[str]:
        """Name what attention reads."""
        if not self.model.gated:
            return [f"{at}qkv"]
        rotated = ".rotated" if self.model.rotary else ""
        return [f"{at}q{rotated}", f"{at}k{rotated}", f"{at}v"]

    @property
    def _product(self) -> int:
        """FLOP of the scores, or of their product with the values."""
        return 2 * self.tokens * self.model.sequence * self.model.hidden

    def _tiles_backward(self, at: str) -> None:
        rows, arriving, entries = f"{at}rows", f"{at}d.mixed", self.tokens * self.model.hidden
        rotated = ".rotated" if self.model.rotary else ""
        each = ".each" if self.model.key_width < self.model.hidden else ""
        self.add(f"{at}attention.dots", [arriving, f"{at}mixed"], {f"{at}dots": self.sizes[rows]})
        written = {f"{at}d.q.sums": FLOAT32 * entries}
        written |= {f"{at}d.k{each or rotated}": self._wide, f"{at}d.v{each}": self._wide}
        reads = [*self._attended(at), arriving, rows, f"{at}dots"]
        self.add(f"{at}attention.dX", reads, written, flops=5 * self._product)
        self.add(f"{at}attention.dq", [f"{at}d.q.sums"], {f"{at}d.q{rotated}": self._wide})
        if each:
            self._by_group(at, rotated)

    def _by_group(self, at: str, rotated: str) -> None:
        """Add up the gradients of keys and values that several queries share."""
        for name in (f"k{rotated}", "v"):
            self.add(f"{at}{name[0]}.group", [f"{at}d.{name[0]}.each"], {f"{at}d.{name}": self._groups})

    def _attend_by_scores(self, at: str) -> None:
        entries = self.element * self.tokens * self.model.sequence * self.model.heads
        *pair, values = self._attended(at)
        self.add(f"{at}scores", pair or [values], {f"{at}scores": entries}, flops=self._product)
        self.add(f"{at}attention.softmax", [f"{at}scores"], {f"{at}softmax": entries})
        weights = f"{at}softmax"
        if self.model.dropout:
            self._dropout(f"{at}dropout", weights, f"{at}weights")
            weights = f"{at}weights"
        self.add(f"{at}mix", [weights, values], {f"{at}mixed": self._wide}, flops=self._product)

    def _scores_backward(self, at: str) -> None:
        rotated = ".rotated" if self.model.rotary else ""
        each = ".each" if self.model.key_width < self.model.hidden else ""
        *pair, values = self._attended(at)
        queries, keys = pair or [values, values]
        weights = f"{at}weights" if self.model.dropout else f"{at}softmax"
        arriving, size = f"{at}d.mixed", self.sizes[weights]
        self.add(f"{at}mix.dv", [arriving, weights], {f"{at}d.v{each}": self._wide}, flops=self._product)
        self.add(f"{at}mix.dX", [arriving, values], {f"{at}d.weights": size}, flops=self._product)
        if self.model.dropout:
            self._dropout_backward(f"{at}dropout", f"{at}d.weights", f"{at}d.softmax")
        read = f"{at}d.softmax" if self.model.dropout else f"{at}d.weights"
        self.add(f"{at}attention.softmax.dX", [read, f"{at}softmax"], {f"{at}d.scores": size})
        self.add(f"{at}scores.dq", [f"{at}d.scores", keys], {f"{at}d.q{rotated}": self._wide}, flops=self._product)
        gradient = f"{at}d.k{each or rotated}"
        self.add(f"{at}scores.dk", [f"{at}d.scores", queries], {gradient: self._wide}, flops=self._product)
        if each:
            self._by_group(at, rotated)

    # --- multilayer perceptron ----------------------------------------------------------------------------------------

    def _transform(self, at: str, write: str) -> None:
        """From the middle of a layer's residual stream to its end."""
        h, f = self.model.hidden, self.model.feedforward
        inner = self.element * self.tokens * f
        self._norm(f"{at}norm2", f"{at}middle", f"{at}n2")
        if self.model.gated:
            self._matrix(f"{at}gate", f"{at}n2", f"{at}gate", h, f)
            self._matrix(f"{at}up", f"{at}n2", f"{at}up", h, f)
            self.add(f"{at}silu", [f"{at}gate"], {f"{at}silu": inner})
            self.add(f"{at}product", [f"{at}silu", f"{at}up"], {f"{at}active": inner})
        else:
            self._matrix(f"{at}up", f"{at}n2", f"{at}up", h, f)
            self.add(f"{at}gelu", [f"{at}up"], {f"{at}active": inner})
        self._matrix(f"{at}down", f"{at}active", f"{at}down", f, h)
        added = f"{at}down"
        if self.model.dropout:
            self._dropout(f"{at}dropout2", added, f"{at}dropped2")
            added = f"{at}dropped2"
        self.sum(f"{at}residual2", [f"{at}middle", added], write)

    def _transform_backward(self, at: str, whole: str) -> None:
        arriving, inner = whole, self.sizes[f"{at}active"]
        if self.model.dropout:
            self._dropout_backward(f"{at}dropout2", arriving, f"{at}d.down")
            arriving = f"{at}d.down"
        self._matrix_backward(f"{at}down", f"{at}active", [arriving], f"{at}d.active")
        if self.model.gated:
            self.add(f"{at}product.dgate", [f"{at}d.active", f"{at}up"], {f"{at}d.silu": inner})
            self.add(f"{at}product.dup", [f"{at}d.active", f"{at}silu"], {f"{at}d.up": inner})
            self.add(f"{at}silu.dX", [f"{at}d.silu", f"{at}gate"], {f"{at}d.gate": inner})
            parts = [f"{at}{name}.d.n2" for name in ("gate", "up")]
            for name, part in zip(("gate", "up"), parts, strict=True):
                self._matrix_backward(f"{at}{name}", f"{at}n2", [f"{at}d.{name}"], part)
            self.sum(f"{at}n2.sum", parts, f"{at}d.n2")
        else:
            self.add(f"{at}gelu.dX", [f"{at}d.active", f"{at}up"], {f"{at}d.up": inner})
            self._matrix_backward(f"{at}up", f"{at}n2", [f"{at}d.up"], f"{at}d.n2")
        self._norm_backward(f"{at}norm2", f"{at}middle", f"{at}d.n2", f"{at}norm2.d.x")
        self.sum(f"{at}middle.sum", [whole, f"{at}norm2.d.x"], f"{at}d.middle")
