"""Training graphs of unrolled LSTM language models, kernel by kernel.

Cells follow Hochreiter and Schmidhuber 1997 with the forget gates of Gers et al. 2000. The language model is that of
Zaremba, Sutskever and Vinyals 2014, *Recurrent neural network regularization* (section 3, equations 1 to 6; sizes of
section 4.1). It has an embedding, layers of LSTM cells with dropout between layers but not in time, and a softmax at
each step. A cell has two matrices with ``4*h*(x + h)`` entries for x inputs and h units, and two biases of ``4*h``. Its
forward takes ``8*h*(x + h)`` FLOP for each sequence, its backward twice as many.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat.generate import check
from remat.generate.devices import DEFAULT
from remat.generate.document import SECONDS_AND_BYTES, Document, document
from remat.generate.networks.kernels import Kernels
from remat.generate.networks.operations import BYTES, Device, roofline
from remat.generate.networks.transformer import FLOAT32, TOKEN

MOST_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Layers, units of each and of the embedding, size of the vocabulary."""

    layers: int
    hidden: int
    vocabulary: int


PRESETS = {
    # Zaremba et al. 2014, section 4.1
    "medium": Shape(2, 650, 10_000),
    "large": Shape(2, 1500, 10_000),
}


def lstm(
    *,
    preset: str = "medium",
    layers: int | None = None,
    hidden: int | None = None,
    vocabulary: int | None = None,
    steps: int = 35,
    batch: int = 20,
    dropout: bool = True,
    dtype: str = "fp32",
    keep_gradients: bool = True,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the training graph of an LSTM language model, unrolled over time.

    Parameters
    ----------
    preset : {"medium", "large"}
        The models of Zaremba et al., with 20 and 66 million parameters.
    layers, hidden, vocabulary : int, optional
        Overrides of the preset.
    steps : int
        Tokens over which the network is unrolled.
    batch : int
        Sequences.
    dropout : bool
        Whether dropout masks (one byte an entry) are drawn and saved.
    dtype : {"fp16", "bf16", "fp32"}
        Type of activations, gradients and weights.
    keep_gradients : bool
        Whether the gradients, which are added up over time in place, stay resident to the end (as `outputs`).
    flops, bandwidth : float, optional
        Default: those of the device for `dtype`.
    device : str
        A name of the shipped table.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; the weights are `static_memory`. ValueError for a parameter out of range, or
        sizes beyond 2^62 bytes.
    """
    check.choice("preset", preset, tuple(PRESETS))
    check.choice("dtype", dtype, tuple(BYTES))
    given = PRESETS[preset]
    shape = Shape(
        check.integer("layers", given.layers if layers is None else layers, minimum=1, maximum=1000),
        check.integer("hidden", given.hidden if hidden is None else hidden, minimum=1),
        check.integer("vocabulary", given.vocabulary if vocabulary is None else vocabulary, minimum=1),
    )
    check.integer("steps", steps, minimum=1, maximum=MOST_STEPS // shape.layers)
    check.integer("batch", batch, minimum=1)
    machine = roofline(dtype, flops, bandwidth, device)
    network = _Unrolled(shape, steps, batch, dropout=dropout, element=BYTES[dtype], device=machine)
    parameters = sum(network.parameters.values())
    remedy = "make the batch or the network smaller, or take fewer steps"
    check.total([BYTES[dtype] * parameters * (steps + 1), *network.sizes.values()], remedy)
    base = f"lstm_{preset}" if shape == given else f"lstm_l{shape.layers}_h{shape.hidden}"
    held: dict[str, str] = {}
    tasks = [network.task(kernel, "", held, added=True) for kernel in network.kernels]
    return document(
        kind="dag",
        name=f"{base}_t{steps}_b{batch}_{dtype}",
        description=f"LSTM language model, {shape.layers} layers of {shape.hidden}, vocabulary {shape.vocabulary}, "
        f"{steps} steps of {batch} sequences, {dtype}, {parameters:,} parameters, joint forward and backward graph; "
        f"roofline times at {machine.flops / 1e12:g} TFLOP/s and {machine.bandwidth / 1e12:g} TB/s",
        units=SECONDS_AND_BYTES,
        static_memory=BYTES[dtype] * parameters,
        inputs=[f"ids{step}" for step in range(steps + 1)],
        outputs=["loss", *held.values()] if keep_gradients else ["loss"],
        values=[{"id": name, "size": size} for name, size in network.listed().items()],
        tasks=tasks,
    )


class _Unrolled(Kernels):
    """The kernels of an unrolled network; those of step 3 in layer 1 are called ``3.1.`` and so on."""

    def __init__(self, shape: Shape, steps: int, batch: int, *, dropout: bool, element: int, device: Device) -> None:
        super().__init__(device, element)
        self.shape, self.batch, self.dropout = shape, batch, dropout
        self.wide = element * batch * shape.hidden
        self._declare()
        for step in range(steps + 1):
            self.sizes[f"ids{step}"] = TOKEN * batch
        for step in range(steps):
            self._forward(step)
        losses = [f"{step}.loss" for step in range(steps)]
        self.add("loss", losses, {"loss": FLOAT32})
        self.phase = "backward"
        for step in reversed(range(steps)):
            self._backward(step, last=step == steps - 1)
        self.rename()

    def _declare(self) -> None:
        h, vocabulary = self.shape.hidden, self.shape.vocabulary
        self.parameter("embedding", vocabulary * h)
        for layer in range(self.shape.layers):
            self.parameter(f"{layer}.in", 4 * h * h, 4 * h)
            self.parameter(f"{layer}.back", 4 * h * h, 4 * h)
        self.parameter("head", vocabulary * h, vocabulary)

    # --- forward ------------------------------------------------------------------------------------------------------

    def _forward(self, step: int) -> None:
        layers, wide = self.shape.layers, self.wide
        ids = f"ids{step}"
        self.add(f"{step}.embedding", [ids], {f"{step}.words": wide}, weight="embedding", traffic=2 * wide)
        x = self._drop(f"{step}.dropout0", f"{step}.words")
        for layer in range(layers):
            self._cell(f"{step}.{layer}.", f"{step - 1}.{layer}." if step else "", layer, x)
            x = self._drop(f"{step}.dropout{layer + 1}", f"{step}.{layer}.h")
        entries = self.batch * self.shape.vocabulary
        flops = 2 * entries * self.shape.hidden
        self.add(f"{step}.head", [x], {f"{step}.logits": self.element * entries}, flops=flops, weight="head")
        self.add(f"{step}.softmax", [f"{step}.logits"], {f"{step}.logarithms": FLOAT32 * entries})
        self.add(f"{step}.loss", [f"{step}.logarithms", f"ids{step + 1}"], {f"{step}.loss": FLOAT32})

    def _drop(self, name: str, read: str) -> str:
        if not self.dropout:
            return read
        self.add(name, [read], {f"{name}.out": self.wide, f"{name}.mask": self.wide // self.element})
        return f"{name}.out"

    @property
    def _product(self) -> int:
        """FLOP of one of a cell's two products."""
        return 8 * self.batch * self.shape.hidden**2

    def _cell(self, at: str, before: str, layer: int, x: str) -> None:
        """Two products, then all gates, the cell and its output in one kernel, which saves the gates."""
        wide, gates = self.wide, [f"{at}from_x"]
        self.add(f"{at}in", [x], {f"{at}from_x": 4 * wide}, flops=self._product, weight=f"{layer}.in")
        if before:  # the first step's state is zero
            reads, written = [f"{before}h"], {f"{at}from_h": 4 * wide}
            self.add(f"{at}back", reads, written, flops=self._product, weight=f"{layer}.back")
            gates += [f"{at}from_h", f"{before}c"]
        self.add(f"{at}cell", gates, {f"{at}h": wide, f"{at}c": wide, f"{at}gates": 4 * wide})

    # --- backward -----------------------------------------------------------------------------------------------------

    def _backward(self, step: int, *, last: bool) -> None:
        entries = self.batch * self.shape.vocabulary
        flops, gradient = 2 * entries * self.shape.hidden, f"{step}.d.logits"
        read = self._output(step)
        self.add(f"{step}.loss.dX", [f"ids{step + 1}"], {f"{step}.d.logarithms": FLOAT32 * entries})
        reads = [f"{step}.logarithms", f"{step}.d.logarithms"]
        self.add(f"{step}.softmax.dX", reads, {gradient: self.element * entries})
        self.add(f"{step}.head.db", [gradient], {}, gradient="head.bias")
        self.add(f"{step}.head.dW", [gradient, read], {}, flops=flops, gradient="head")
        self.add(f"{step}.head.dX", [gradient], {f"{step}.head.d.x": self.wide}, flops=flops, weight="head")
        arriving = f"{step}.head.d.x"
        for layer in reversed(range(self.shape.layers)):
            arriving = self._undrop(f"{step}.dropout{layer + 1}", arriving)
            arriving = self._cell_backward(step, layer, arriving, last=last)
        arriving = self._undrop(f"{step}.dropout0", arriving)
        self.add(f"{step}.embedding.dW", [arriving, f"ids{step}"], {}, gradient="embedding", traffic=3 * self.wide)

    def _output(self, step: int) -> str:
        return f"{step}.dropout{self.shape.layers}.out" if self.dropout else f"{step}.{self.shape.layers - 1}.h"

    def _undrop(self, name: str, arriving: str) -> str:
        if not self.dropout:
            return arriving
        self.add(f"{name}.dX", [arriving, f"{name}.mask"], {f"{name}.d": self.wide})
        return f"{name}.d"

    def _cell_backward(self, step: int, layer: int, arriving: str, *, last: bool) -> str:
        """Return the name of the gradient of the cell's input."""
        at, before, after = f"{step}.{layer}.", f"{step - 1}.{layer}.", f"{step + 1}.{layer}."
        wide, gates = self.wide, f"{at}d.gates"
        if not last:
            self.sum(f"{at}h.sum", [arriving, f"{after}back.d.h"], f"{at}d.h")
            arriving = f"{at}d.h"
        reads = [arriving, f"{at}gates", f"{at}c"]
        reads += ([] if last else [f"{after}cell.d.c"]) + ([f"{before}c"] if step else [])
        written = {gates: 4 * wide} | ({f"{at}cell.d.c": wide} if step else {})
        self.add(f"{at}cell.dX", reads, written)
        x = f"{step}.dropout{layer}.out" if self.dropout else f"{step}.{layer - 1}.h" if layer else f"{step}.words"
        products = [("in", x, f"{at}in.d.x")] + ([("back", f"{before}h", f"{at}back.d.h")] if step else [])
        for name, read, written_gradient in products:
            weight = f"{layer}.{name}"
            self.add(f"{at}{name}.db", [gates], {}, gradient=f"{weight}.bias")
            self.add(f"{at}{name}.dW", [gates, read], {}, flops=self._product, gradient=weight)
            self.add(f"{at}{name}.dX", [gates], {written_gradient: wide}, flops=self._product, weight=weight)
        return f"{at}in.d.x"
