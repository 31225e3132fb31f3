"""Training graphs of networks given as operations, each with a forward and a backward task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat.generate import check
from remat.generate.document import SECONDS_AND_BYTES, Document, document
from remat.generate.networks.images import FLOAT32
from remat.generate.networks.operations import Device, Operation, Tensor


@dataclass(frozen=True, slots=True)
class Network:
    """A network and how it is trained.

    Parameters
    ----------
    operations : sequence of Operation
        In order; the last writes the network's output.
    source : Tensor
        The network's input: resident at the start, its gradient is not wanted.
    loss_size : int
        Bytes of the fp32 probabilities between the loss and its backward.
    element : int
        Bytes of a weight.
    name, what : str
        The document's name, and the beginning of its description.
    """

    operations: Sequence[Operation]
    source: Tensor
    loss_size: int
    element: int
    name: str
    what: str


def training_graph(network: Network, device: Device, *, keep_gradients: bool, in_place: bool = False) -> Document:
    """Return the joint forward and backward graph of a network.

    Every kernel is a task. Its backward reads the saved values and the gradients of the outputs, and writes the
    gradients of the inputs and weights. Gradients pass through sums without a task.

    Parameters
    ----------
    network : Network
    device : Device
    keep_gradients : bool
        Whether the weights' gradients are `outputs`.
    in_place : bool
        Whether operations work in place that can, and gradients that reach a tensor from several readers are added up
        in place, one by one, as they come. Otherwise a task of their own adds all of them, once all are there.

    Returns
    -------
    dict
        Kind ``dag``; the weights are `static_memory`.
    """
    graph = _Graph(network.source, device, in_place)
    for operation in network.operations:
        graph.forward(operation)
    graph.loss(network.operations[-1].writes[0], network.loss_size)
    for operation in reversed(network.operations):
        graph.backward(operation)
    weights = sum(operation.weights for operation in network.operations)
    check.total([weights, *graph.sizes.values()], "make the batch or the network smaller")
    return document(
        kind="dag",
        name=network.name,
        description=f"{network.what}, {weights // network.element:,} parameters, joint forward and backward graph; "
        f"roofline times at {device.flops / 1e12:g} TFLOP/s and {device.bandwidth / 1e12:g} TB/s",
        units=SECONDS_AND_BYTES,
        static_memory=weights or None,
        values=[{"id": value, "size": size} for value, size in graph.sizes.items()],
        tasks=graph.tasks,
        inputs=[network.source.name],
        outputs=["loss", *graph.weight_gradients] if keep_gradients else ["loss"],
    )


class _Graph:
    """Values and tasks of a training graph in the making."""

    def __init__(self, source: Tensor, device: Device, in_place: bool) -> None:
        self.source = source
        self.device = device
        self.in_place = in_place
        self.sizes = {source.name: source.size}
        self.tasks: list[Document] = []
        self.weight_gradients: list[str] = []
        self.gradients: dict[Tensor, list[str]] = {}  # contributions so far
        self.parts: dict[Tensor, int] = {}  # how many names a tensor's gradients have had
        self.remade: dict[Tensor, Operation] = {}
        self.again: dict[Tensor, str] = {}

    def forward(self, operation: Operation) -> None:
        """Append the task of an operation."""
        self.sizes.update((tensor.name, tensor.size) for tensor in operation.writes)
        if operation.again:
            self.remade[operation.writes[0]] = operation
        reads, writes = ([tensor.name for tensor in tensors] for tensors in (operation.reads, operation.writes))
        in_place = self.in_place and operation.in_place
        self._task(operation.name, operation.forward_time(self.device), reads, writes, "forward", in_place=in_place)

    def loss(self, output: Tensor, size: int) -> None:
        """Append the loss and its backward."""
        gradient = f"d.{output.name}"
        self.sizes.update({"loss": FLOAT32, "probabilities": size, gradient: output.size})
        self.gradients[output] = [gradient]
        time = self.device.time(0, output.size + size)
        self._task("loss", time, [output.name], ["loss", "probabilities"], "forward")
        self._task("loss.backward", time, ["probabilities"], [gradient], "backward")

    def backward(self, operation: Operation) -> None:
        """Append the backward of an operation, after the sums of the gradients that it needs."""
        arriving = [self._gradient(tensor) for tensor in operation.writes if tensor.differentiable]
        wanted = [tensor for tensor in operation.reads if tensor.differentiable and tensor != self.source]
        if operation.passes_gradient:
            for tensor in wanted:
                for gradient in arriving:
                    self._arrive(tensor, gradient)
            return
        reads = [*arriving, *(self._saved(tensor) for tensor in operation.saves)]
        fresh, in_place = [], False
        writes = []
        for tensor in wanted:
            if operation.accumulates and self.gradients.get(tensor):
                reads += self.gradients.pop(tensor)
                in_place = True
            fresh.append((tensor, self._fresh(tensor)))
            writes.append(fresh[-1][1])
        if operation.weight_gradient:
            writes.append(f"dW.{operation.name}")
            self.sizes[writes[-1]] = operation.weight_gradient
            self.weight_gradients.append(writes[-1])
        if writes:
            time = operation.backward_time(self.device, input_gradient=bool(wanted))
            self._task(f"{operation.name}.backward", time, reads, writes, "backward", in_place=in_place)
        for tensor, gradient in fresh:
            self._arrive(tensor, gradient)

    def _fresh(self, tensor: Tensor) -> str:
        """Name and declare one more gradient of a tensor."""
        count = self.parts.get(tensor, len(self.gradients.get(tensor, ())))
        self.parts[tensor] = count + 1
        name = f"d.{tensor.name}" + (f".{count}" if count else "")
        self.sizes[name] = tensor.size
        return name

    def _arrive(self, tensor: Tensor, gradient: str) -> None:
        """Record a contribution to a tensor's gradient; in place, add it to the existing gradient."""
        known = self.gradients.setdefault(tensor, [])
        known.append(gradient)
        self.parts[tensor] = max(self.parts.get(tensor, 0), len(known))
        if self.in_place and len(known) == 2:
            total = self._fresh(tensor)
            time = self.device.time(0, 3 * tensor.size)
            self._task(f"{total}.sum", time, list(known), [total], "backward", in_place=True)
            self.gradients[tensor] = [total]

    def _gradient(self, tensor: Tensor) -> str:
        contributions = self.gradients[tensor]
        if len(contributions) == 1:
            return contributions[0]
        total = f"d.{tensor.name}.sum"
        self.sizes[total] = tensor.size
        time = self.device.time(0, (len(contributions) + 1) * tensor.size)
        self._task(f"{tensor.name}.accumulate", time, list(contributions), [total], "backward")
        return total

    def _saved(self, tensor: Tensor) -> str:
        """Name a tensor for a backward; recompute it first if the network does so."""
        if tensor not in self.remade:
            return tensor.name
        if tensor not in self.again:
            operation = self.remade[tensor]
            name = self.again[tensor] = f"{tensor.name}.again"
            self.sizes[name] = tensor.size
            reads = [self._saved(each) for each in operation.reads]
            in_place = self.in_place and operation.in_place
            time = operation.forward_time(self.device)
            self._task(f"{operation.name}.again", time, reads, [name], "backward", in_place=in_place)
        return self.again[tensor]

    def _task(
        self, name: str, time: float, reads: list[str], writes: list[str], phase: str, *, in_place: bool = False
    ) -> None:
        task: Document = {"id": name, "time": time, "reads": reads, "writes": writes}
        self.tasks.append(task | ({"in_place": True} if in_place else {}) | {"phase": phase})
