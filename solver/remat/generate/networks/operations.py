"""Layers as lists of operations, from which stage times, saved sizes and workspaces follow.

Each layer is specified once, as the kernels that a framework would launch. The figures of an instance follow from
these rules:

- time: each kernel takes the longer of its arithmetic and its memory traffic (roofline model; Williams,
  Waterman and Patterson 2009), reading and writing every tensor it touches once;
- saved: what the kernels' backward passes read, beyond the layer's input and output;
- workspace: the peak of the bytes that live during the layer, beyond what it reads and writes as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from remat.generate import check
from remat.generate.check import Number
from remat.generate.devices import devices, rates
from remat.generate.document import Document

BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
"""Bytes of one element."""


@dataclass(frozen=True, slots=True)
class Device:
    """Rates of the roofline: FLOP/s and bytes/s."""

    flops: Number
    bandwidth: Number

    def time(self, flops: int, traffic: int) -> float:
        """Return the seconds that one kernel takes."""
        return max(flops / self.flops, traffic / self.bandwidth)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of `size` bytes; masks, indices and statistics have no gradient."""

    name: str
    size: int
    differentiable: bool = True


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel and its backward.

    Parameters
    ----------
    name : str
    reads, writes : tuple of Tensor
    saves : tuple of Tensor
        What the backward reads.
    flops : int
        Operations of the forward; the backward needs as many for each of its two products (input and weight
        gradients, or the gradients of both factors), plus `backward_extra_flops`.
    weights : int
        Bytes of parameters.
    gradient : int, optional
        Bytes of the parameters' gradient, a workspace of the backward; default: `weights`. 0: they are frozen.
    unpacked : int
        Bytes of quantized parameters once they are unpacked, a workspace of the forward and the backward.
    gathered : bool
        Only the rows of the weights that are written out are read (embeddings).
    in_place : bool
        The output takes over the bytes of the only input.
    passes_gradient : bool
        The gradients of the inputs are that of the output (sums): no kernel, no bytes.
    again : bool
        The first output is not saved: training graphs recompute it before the backward that needs it.
    accumulates : bool
        The backward adds to the existing gradients of the inputs in place.
    """

    name: str
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    saves: tuple[Tensor, ...] = ()
    flops: int = 0
    weights: int = 0
    gathered: bool = False
    in_place: bool = False
    passes_gradient: bool = False
    again: bool = False
    accumulates: bool = False
    backward_extra_flops: int = 0
    gradient: int | None = None
    unpacked: int = 0

    @property
    def weight_gradient(self) -> int:
        """Bytes of the gradient of the parameters."""
        return self.weights if self.gradient is None else self.gradient

    def forward_time(self, device: Device) -> float:
        """Return the seconds of the forward kernel."""
        traffic = _bytes(self.reads) + _bytes(self.writes) + (0 if self.gathered else self.weights)
        return device.time(self.flops, traffic)

    def backward_time(self, device: Device, *, input_gradient: bool = True) -> float:
        """Return the seconds of the backward kernels; without an input gradient half the products go."""
        if self.passes_gradient or not _differentiable(self.writes):
            return 0.0
        produced = _bytes(_differentiable(self.reads)) if input_gradient else 0
        if self.weights and not self.weight_gradient and not produced:
            return 0.0
        arriving = _bytes(_differentiable(self.writes))
        read = 0 if self.gathered else self.weights
        traffic = _bytes(self.saves) + arriving + produced + read + self.weight_gradient
        factors = not self.weights or self.weight_gradient > 0  # there is another product: the gradient of those
        products = input_gradient + factors
        return device.time(products * self.flops + self.backward_extra_flops, traffic)


def roofline(dtype: str, flops: object, bandwidth: object, device: str) -> Device:
    """Return the rates of a shipped device for a type, with what ``flops`` and ``bandwidth`` give instead."""
    known = rates(check.choice("device", device, tuple(devices())), dtype)
    return Device(
        check.number("flops", known.flops if flops is None else flops, minimum=1),
        check.number("bandwidth", known.bandwidth if bandwidth is None else bandwidth, minimum=1),
    )


def stage(
    *,
    name: str,
    operations: Sequence[Operation],
    device: Device,
    input_gradient: bool = True,
    repeat: int = 1,
    outside: Sequence[Tensor] = (),
) -> Document:
    """Return the stage of a chain that runs `operations` in order.

    Parameters
    ----------
    name : str
    operations : sequence of Operation
        The first reads the stage's input, the last writes its output as its first tensor.
    device : Device
    input_gradient : bool
        Whether the gradient of the stage's input is wanted.
    repeat : int
        Number of equal stages.
    outside : sequence of Tensor
        What other stages save for it, such as the output of an encoder.

    Returns
    -------
    dict
        A stage of kind ``chain``: times in seconds, sizes in bytes.
    """
    source, output = operations[0].reads[0], operations[-1].writes[0]
    saved = tuple(tensor for tensor in saved_tensors(operations) if tensor not in outside)
    without = set() if input_gradient else {source}
    backward_times = [_accumulations(operations, without) / device.bandwidth]
    for operation in reversed(operations):
        wanted = any(tensor not in without for tensor in _differentiable(operation.reads))
        backward_times.append(operation.backward_time(device, input_gradient=wanted))
    result: Document = {
        "name": name,
        # fsum, because from Python 3.12 on the plain sum of floats rounds differently.
        "forward_time": fsum(operation.forward_time(device) for operation in operations),
        "backward_time": fsum(backward_times),
        "output_size": output.size,
        "saved_size": _bytes(saved),
        "forward_workspace": _forward_workspace(operations, ()),
        "saving_workspace": _forward_workspace(operations, saved),
        "backward_workspace": _backward_workspace(operations, saved, input_gradient=input_gradient),
    }
    if repeat > 1:
        result["repeat"] = repeat
    return result


def check_stages(stages: Sequence[Document], static_memory: int, remedy: str) -> None:
    """Refuse stages whose sizes are beyond the format's bounds, counted as the format does."""
    found = static_memory
    for each in stages:
        sizes = sum(value for key, value in each.items() if key.endswith(("_size", "_workspace")))
        found += each.get("repeat", 1) * (sizes + each["output_size"])  # the output's gradient is as large
    check.total([found], remedy)


def saved_tensors(operations: Sequence[Operation]) -> tuple[Tensor, ...]:
    """Return the tensors that the backward needs in addition to the stage's input and output, each once."""
    ends = {operations[0].reads[0], operations[-1].writes[0]}
    found = dict.fromkeys(tensor for operation in operations for tensor in operation.saves)
    return tuple(tensor for tensor in found if tensor not in ends)


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.size for tensor in tensors)


def _differentiable(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor.differentiable]


def _accumulations(operations: Sequence[Operation], without: set[Tensor]) -> int:
    """Bytes moved by the sums of the gradients that reach a tensor from several readers."""
    readers = Counter(tensor for operation in operations for tensor in _differentiable(operation.reads))
    return sum(3 * tensor.size * (count - 1) for tensor, count in readers.items() if tensor not in without)


def _forward_workspace(operations: Sequence[Operation], saved: Sequence[Tensor]) -> int:
    """Peak of the live bytes without the input, the output and saved tensors (at least 0)."""
    source, output = operations[0].reads[0], operations[-1].writes[0]
    last = {tensor: k for k, operation in enumerate(operations) for tensor in (*operation.writes, *operation.reads)}
    live: set[Tensor] = set()
    peak = 0
    for k, operation in enumerate(operations):
        if operation.in_place and operation.reads[0] not in saved:
            live.discard(operation.reads[0])
        live.update(operation.writes)
        peak = max(peak, sum(tensor.size for tensor in live) + operation.unpacked)
        live = {t for t in live if last[t] > k or t in saved or t == output}
    kept = sum(tensor.size for tensor in saved)
    return max(0, peak - kept - (0 if source == output else output.size))


def _backward_workspace(operations: Sequence[Operation], saved: Sequence[Tensor], *, input_gradient: bool) -> int:
    """Peak of the live bytes beyond saved tensors and the gradients of the input and the output.

    Saved tensors are freed after the backward of the first operation that saves them (the last to need
    them). A gradient lives from the last reader's backward to its writer's; those that pass through a sum
    share their bytes.
    """
    source, output = operations[0].reads[0], operations[-1].writes[0]
    first_need: dict[Tensor, int] = {}
    for k, operation in enumerate(operations):
        for tensor in operation.saves:
            first_need.setdefault(tensor, k)
    held = set(saved)
    buffer: dict[Tensor, int] = {output: -1}  # gradients; buffer -1 is the given one
    size = {-1: 0}
    peak = 0
    for k in range(len(operations) - 1, -1, -1):
        operation = operations[k]
        arriving = [buffer[t] for t in operation.writes if t in buffer]
        fresh: list[tuple[Tensor, int]] = []
        for tensor in _differentiable(operation.reads):
            if tensor == source and not input_gradient:
                continue
            if operation.passes_gradient and arriving and tensor not in buffer:
                buffer[tensor] = arriving[0]
            else:
                handle = len(size)
                size[handle] = tensor.size
                fresh.append((tensor, handle))
        live = {*buffer.values(), *(b for _, b in fresh)}
        gradients = sum(size[b] for b in live)
        peak = max(peak, gradients + sum(t.size for t in held) + operation.weight_gradient + operation.unpacked)
        buffer.update(fresh)  # a sum goes into the newcomer
        for tensor in operation.writes:
            buffer.pop(tensor, None)
        held = {t for t in held if first_need[t] < k}
    own = source.size if input_gradient and source.differentiable else 0
    return max(0, peak - _bytes(saved) - own)
