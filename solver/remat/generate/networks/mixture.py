"""Transformers whose multilayer perceptrons are mixtures of experts, kernel by kernel.

The model is that of Jiang et al. 2024, *Mixtral of experts* (section 2). Each token goes to the `chosen` experts with
the largest logits of a linear router, weighted by the softmax over these logits. The load is assumed to be balanced:
each expert has ``ceil(tokens * chosen / experts)`` tokens, the capacity of Lepikhin et al. 2021, *GShard*, at factor
one. Each expert gathers its tokens, applies SwiGLU, weights the results, and adds them to the output in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from remat.generate import check
from remat.generate.devices import DEFAULT, HOST_LINK
from remat.generate.document import Document
from remat.generate.networks.micro_batch import MicroBatch
from remat.generate.networks.operations import BYTES, Device, roofline
from remat.generate.networks.step import MOST_LAYERS, Setting, training_step
from remat.generate.networks.transformer import FLOAT32, SHAPE, TOKEN, Architecture, changed

MOST_EXPERTS = 1_000


@dataclass(frozen=True, slots=True)
class Mixture(Architecture):
    """A transformer of the Llama style with `experts` in each block, of which every token uses `chosen`."""

    experts: int = 8
    chosen: int = 2

    @property
    def layer_parameters(self) -> int:
        """Parameters of one block, all its experts and the router included."""
        expert = 3 * self.hidden * self.feedforward
        return self.attention_parameters + self.experts * (expert + self.hidden) + self.norm_parameters


PRESETS = {
    # Jiang et al. 2024, table 1; sequences of 4096 tokens
    "mixtral-8x7b": Mixture(
        32, 4096, 32, 4096, 32000, 14336, gated=True, rotary=True, tied=False, dropout=False, key_heads=8
    ),
}


def mixture_step(
    *,
    preset: str = "mixtral-8x7b",
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    sequence: int | None = None,
    vocabulary: int | None = None,
    feedforward: int | None = None,
    key_heads: int | None = None,
    experts: int | None = None,
    chosen: int | None = None,
    batch: int = 1,
    micro_batches: int = 1,
    dtype: str = "bf16",
    flash: bool = True,
    parameters: str = "none",
    gradients: str | None = None,
    optimizer: str = "adam",
    link: float = HOST_LINK,
    host_speed: float = 1 / 16,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the training step of a mixture of experts as a task graph.

    Parameters
    ----------
    preset : {"mixtral-8x7b"}
    experts, chosen : int, optional
        Experts of a block, and how many of them each token uses.
    layers, hidden, heads, sequence, vocabulary, feedforward, key_heads, batch, micro_batches, dtype, flash, parameters
        As for `remat.generate.networks.transformer_step.transformer_step`, and so are all others.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; ``tasks`` and ``values`` are `Rows`. ValueError for a parameter out of range,
        sizes beyond 2^62 bytes, or more than 10^7 tasks.
    """
    check.choice("preset", preset, tuple(PRESETS))
    check.choice("dtype", dtype, tuple(BYTES))
    model = PRESETS[preset]
    many = check.integer("experts", model.experts if experts is None else experts, minimum=1, maximum=MOST_EXPERTS)
    used = check.integer("chosen", model.chosen if chosen is None else chosen, minimum=1)
    if used > many:
        raise ValueError(f"chosen {used} are more than the {many} experts; give at most as many")
    given = (layers, hidden, heads, sequence, vocabulary, feedforward, key_heads)
    model = changed(replace(model, experts=many, chosen=used), dict(zip(SHAPE, given, strict=True)), None)
    check.integer("layers", model.layers, maximum=MOST_LAYERS)
    size = check.integer("batch", batch, minimum=1)
    once = MixtureMicroBatch(
        model, batch=size, element=BYTES[dtype], flash=flash, device=roofline(dtype, flops, bandwidth, device)
    )
    setting = Setting(micro_batches, parameters, gradients, optimizer, link, host_speed)
    base = preset if model == PRESETS[preset] else f"moe_l{model.layers}_h{model.hidden}_e{many}"
    what = f"Mixture of {many} experts, {used} a token"
    return training_step(once, setting, base=base, what=what, dtype=dtype)


class MixtureMicroBatch(MicroBatch):
    """One micro-batch of a mixture of experts."""

    def __init__(self, model: Mixture, *, batch: int, element: int, flash: bool, device: Device) -> None:
        self.mixture = model
        self.rows = -(-batch * model.sequence * model.chosen // model.experts)
        self.gathered = element * self.rows * model.hidden  # bytes of one expert's tokens
        super().__init__(model, batch=batch, element=element, flash=flash, device=device)

    def _transform(self, at: str, write: str) -> None:
        model, mixed, picked = self.mixture, f"{at}zeros", self.tokens * self.mixture.chosen
        self._norm(f"{at}norm2", f"{at}middle", f"{at}n2")
        self._matrix(f"{at}router", f"{at}n2", f"{at}choices", model.hidden, model.experts)
        self.add(f"{at}top", [f"{at}choices"], {f"{at}shares": FLOAT32 * picked, f"{at}indices": TOKEN * picked})
        self.add(mixed, [], {mixed: self._wide})
        for expert in range(model.experts):
            mixed = self._expert(at, f"{at}e{expert}.", mixed)
        self.sum(f"{at}residual2", [f"{at}middle", mixed], write)

    def _expert(self, at: str, own: str, mixed: str) -> str:
        """Add an expert's results for its tokens to the output; return the output's name."""
        h, f = self.model.hidden, self.model.feedforward
        self.add(f"{own}gather", [f"{at}n2", f"{at}indices"], {f"{own}x": self.gathered}, traffic=2 * self.gathered)
        self._rows_matrix(f"{own}gate", f"{own}x", h, f)
        self._rows_matrix(f"{own}up", f"{own}x", h, f)
        inner = self.sizes[f"{own}gate"]
        self.add(f"{own}silu", [f"{own}gate"], {f"{own}silu": inner})
        self.add(f"{own}product", [f"{own}silu", f"{own}up"], {f"{own}active": inner})
        self._rows_matrix(f"{own}down", f"{own}active", f, h)
        self.add(f"{own}weigh", [f"{own}down", f"{at}shares"], {f"{own}weighed": self.gathered})
        reads = [mixed, f"{own}weighed", f"{at}indices"]
        self._add_rows(f"{own}scatter", reads, f"{own}mixed")
        return f"{own}mixed"

    def _transform_backward(self, at: str, whole: str) -> None:
        collected, parts = f"{at}d.zeros", []
        self.add(collected, [], {collected: self._wide})
        for expert in reversed(range(self.mixture.experts)):
            own = f"{at}e{expert}."
            self._expert_backward(at, own, whole)
            reads = [collected, f"{own}d.x", f"{at}indices"]
            collected = f"{own}d.n2"
            self._add_rows(f"{own}gather.dX", reads, collected)
            parts.append(f"{own}d.shares")
        choices = {f"{at}d.choices": self.sizes[f"{at}choices"]}
        self.add(f"{at}top.dX", [*parts, f"{at}shares", f"{at}indices"], choices)
        self._matrix_backward(f"{at}router", f"{at}n2", [f"{at}d.choices"], f"{at}router.d.n2")
        self.sum(f"{at}n2.sum", [collected, f"{at}router.d.n2"], f"{at}d.n2")
        self._norm_backward(f"{at}norm2", f"{at}middle", f"{at}d.n2", f"{at}norm2.d.x")
        self.sum(f"{at}middle.sum", [whole, f"{at}norm2.d.x"], f"{at}d.middle")

    def _expert_backward(self, at: str, own: str, whole: str) -> None:
        inner, arriving = self.sizes[f"{own}gate"], f"{own}d.weighed"
        self.add(f"{own}scatter.dX", [whole, f"{at}indices"], {arriving: self.gathered}, traffic=2 * self.gathered)
        self.add(f"{own}weigh.dshares", [arriving, f"{own}down"], {f"{own}d.shares": FLOAT32 * self.rows})
        self.add(f"{own}weigh.dX", [arriving, f"{at}shares"], {f"{own}d.down": self.gathered})
        self._rows_matrix_backward(f"{own}down", f"{own}active", f"{own}d.active")
        self.add(f"{own}product.dgate", [f"{own}d.active", f"{own}up"], {f"{own}d.silu": inner})
        self.add(f"{own}product.dup", [f"{own}d.active", f"{own}silu"], {f"{own}d.up": inner})
        self.add(f"{own}silu.dX", [f"{own}d.silu", f"{own}gate"], {f"{own}d.gate": inner})
        self._rows_matrix_backward(f"{own}gate", f"{own}x", f"{own}gate.d.x")
        self._rows_matrix_backward(f"{own}up", f"{own}x", f"{own}up.d.x")
        self.sum(f"{own}x.sum", [f"{own}gate.d.x", f"{own}up.d.x"], f"{own}d.x")

    # --- kernels on one expert's tokens -------------------------------------------------------------------------------

    def _rows_matrix(self, name: str, read: str, rows: int, columns: int) -> None:
        self.parameter(name, rows * columns)
        flops = 2 * self.rows * rows * columns
        self.add(name, [read], {name: self.element * self.rows * columns}, flops=flops, weight=name)

    def _rows_matrix_backward(self, name: str, read: str, write: str) -> None:
        head, _, tail = name.rpartition(".")
        flops, arriving = 2 * self.rows * self.parameters[name], f"{head}.d.{tail}"
        self.add(f"{name}.dW", [arriving, read], {}, flops=flops, gradient=name)
        self.add(f"{name}.dX", [arriving], {write: self.sizes[read]}, flops=flops, weight=name)

    def _add_rows(self, name: str, reads: list[str], write: str) -> None:
        """Add an expert's tokens to rows of all tokens, in place."""
        self.add(name, reads, {write: self._wide}, traffic=3 * self.gathered, in_place=True)
