"""Training graphs of networks as kind `dag`: U-Net and a multilayer perceptron, forward and backward tasks."""

from __future__ import annotations

from collections.abc import Sequence

from remat.generate import check
from remat.generate.document import SECONDS_AND_BYTES, Document, document
from remat.generate.networks.images import FLOAT32, Image, ImageKernels
from remat.generate.networks.operations import BYTES, Device, Operation, Tensor, device

DEEPEST = 12
MOST_LAYERS = 20_000


def unet(
    *,
    depth: int = 4,
    channels: int = 64,
    image: int = 256,
    batch: int = 4,
    classes: int = 2,
    dtype: str = "fp32",
    keep_gradients: bool = True,
    flops: float | None = None,
    bandwidth: float | None = None,
) -> Document:
    """Return the training graph of a U-Net: encoder, decoder, and the skips that live from one to the other.

    Ronneberger, Fischer and Brox 2015, *U-Net: convolutional networks for biomedical image segmentation*,
    figure 1, with padded convolutions and batch norms: 23 convolutions and 31 million parameters at the
    defaults.

    Parameters
    ----------
    depth : int
        Poolings (and up-convolutions); each halves the edge and doubles the channels.
    channels : int
        Channels at full resolution.
    image : int
        Edge of the square images in pixels, a multiple of 2^depth.
    batch, classes : int
    dtype : {"fp16", "bf16", "fp32"}
        Of activations, gradients and weights.
    keep_gradients : bool
        Whether the weights' gradients stay resident to the end (as `outputs`).
    flops : float, optional
        FLOP/s of the device; default an A100's for `dtype`.
    bandwidth : float, optional
        Memory bandwidth in bytes/s; default an A100's.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes (see `training_graph`).

    Raises
    ------
    ValueError
        A parameter out of range, or sizes beyond 2^62 bytes.
    """
    check.integer("depth", depth, minimum=1, maximum=DEEPEST)
    check.integer("channels", channels, minimum=1, maximum=1_000_000)
    check.integer("image", image, minimum=1, maximum=1_000_000)
    check.integer("batch", batch, minimum=1)
    check.integer("classes", classes, minimum=1)
    check.choice("dtype", dtype, tuple(BYTES))
    if image % 2**depth:
        rounded = max(1, round(image / 2**depth)) * 2**depth
        raise ValueError(f"image {image} is not a multiple of 2^depth = {2**depth}; take {rounded}, or a smaller depth")
    operations, source = _unet_operations(ImageKernels(batch, BYTES[dtype]), depth, channels, image, classes)
    machine = device(dtype, flops, bandwidth)
    return training_graph(
        operations,
        source=source,
        device=machine,
        keep_gradients=keep_gradients,
        loss_size=FLOAT32 * batch * classes * image * image,
        name=f"unet_d{depth}_c{channels}_b{batch}_{image}_{dtype}",
        what=f"U-Net, depth {depth}, {channels} channels, {batch} images of {image}x{image}, {dtype}",
        element=BYTES[dtype],
    )


def mlp(
    *,
    layers: int = 12,
    width: int = 1024,
    batch: int = 256,
    dropout: bool = True,
    dtype: str = "fp32",
    keep_gradients: bool = True,
    flops: float | None = None,
    bandwidth: float | None = None,
) -> Document:
    """Return the training graph of a multilayer perceptron: per layer a matrix, tanh and dropout.

    Parameters
    ----------
    layers : int
    width : int
        Units of every layer, of the input too.
    batch : int
    dropout : bool
        Whether masks (one byte per element) are drawn and saved.
    dtype, keep_gradients, flops, bandwidth
        As for `unet`.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes (see `training_graph`).

    Raises
    ------
    ValueError
        A parameter out of range, or sizes beyond 2^62 bytes.
    """
    check.integer("layers", layers, minimum=1, maximum=MOST_LAYERS)
    check.integer("width", width, minimum=1)
    check.integer("batch", batch, minimum=1)
    check.choice("dtype", dtype, tuple(BYTES))
    element = BYTES[dtype]
    source = hidden = Tensor("x", element * batch * width)
    operations = []
    for layer in range(1, layers + 1):
        linear = Tensor(f"linear{layer}", source.size)
        weights = element * (width * width + width)
        product = 2 * batch * width * width
        operations.append(Operation(linear.name, (hidden,), (linear,), (hidden,), flops=product, weights=weights))
        hidden = Tensor(f"tanh{layer}", source.size)
        operations.append(Operation(hidden.name, (linear,), (hidden,), (hidden,)))
        if dropout:
            kept = Tensor(f"dropout{layer}", source.size)
            mask = Tensor(f"mask{layer}", batch * width, differentiable=False)
            operations.append(Operation(kept.name, (hidden,), (kept, mask), (mask,)))
            hidden = kept
    return training_graph(
        operations,
        source=source,
        device=device(dtype, flops, bandwidth),
        keep_gradients=keep_gradients,
        loss_size=FLOAT32 * batch * width,
        name=f"mlp_l{layers}_w{width}_b{batch}_{dtype}",
        what=f"Multilayer perceptron, {layers} layers of {width}, batch {batch}, {dtype}",
        element=element,
    )


def training_graph(
    operations: Sequence[Operation],
    *,
    source: Tensor,
    device: Device,
    keep_gradients: bool,
    loss_size: int,
    name: str,
    what: str,
    element: int,
) -> Document:
    """Return the joint forward and backward graph of a list of operations.

    Every kernel is a task; its backward reads what the operation saves and the gradients of what it wrote,
    and writes the gradients of what it read and of its weights. Gradients that reach a tensor from several
    readers are added by a task of their own; through sums they pass without one. Nothing works in place.

    Parameters
    ----------
    operations : sequence of Operation
        In order; the last writes the network's output.
    source : Tensor
        The network's input: resident at the start, its gradient is not wanted.
    device : Device
    keep_gradients : bool
        Whether the weights' gradients are `outputs`.
    loss_size : int
        Bytes of the fp32 probabilities between the loss and its backward.
    name, what : str
        The document's name, and the beginning of its description.
    element : int
        Bytes of a weight.

    Returns
    -------
    dict
        Kind ``dag``; the weights are `static_memory`.
    """
    graph = _Graph(source, device)
    for operation in operations:
        graph.forward(operation)
    graph.loss(operations[-1].writes[0], loss_size)
    for operation in reversed(operations):
        graph.backward(operation)
    weights = sum(operation.weights for operation in operations)
    check.total([weights, *graph.sizes.values()], "make the batch or the network smaller")
    return document(
        kind="dag",
        name=name,
        description=f"{what}, {weights // element:,} parameters, joint forward and backward graph; roofline times at "
        f"{device.flops / 1e12:g} TFLOP/s and {device.bandwidth / 1e12:g} TB/s",
        units=SECONDS_AND_BYTES,
        static_memory=weights or None,
        values=[{"id": value, "size": size} for value, size in graph.sizes.items()],
        tasks=graph.tasks,
        inputs=[source.name],
        outputs=["loss", *graph.weight_gradients] if keep_gradients else ["loss"],
    )


class _Graph:
    """Values and tasks of a training graph in the making."""

    def __init__(self, source: Tensor, device: Device) -> None:
        self.source = source
        self.device = device
        self.sizes = {source.name: source.size}
        self.tasks: list[Document] = []
        self.weight_gradients: list[str] = []
        self.gradients: dict[Tensor, list[str]] = {}  # contributions so far

    def forward(self, operation: Operation) -> None:
        """Append the task of an operation."""
        self.sizes.update((tensor.name, tensor.size) for tensor in operation.writes)
        reads, writes = ([tensor.name for tensor in tensors] for tensors in (operation.reads, operation.writes))
        self._task(operation.name, operation.forward_time(self.device), reads, writes, "forward")

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
                self.gradients.setdefault(tensor, []).extend(arriving)
            return
        writes = []
        for tensor in wanted:
            contributions = self.gradients.setdefault(tensor, [])
            contributions.append(f"d.{tensor.name}" + (f".{len(contributions)}" if contributions else ""))
            writes.append(contributions[-1])
            self.sizes[writes[-1]] = tensor.size
        if operation.weights:
            writes.append(f"dW.{operation.name}")
            self.sizes[writes[-1]] = operation.weights
            self.weight_gradients.append(writes[-1])
        if writes:
            reads = [*arriving, *(tensor.name for tensor in operation.saves)]
            time = operation.backward_time(self.device, input_gradient=bool(wanted))
            self._task(f"{operation.name}.backward", time, reads, writes, "backward")

    def _gradient(self, tensor: Tensor) -> str:
        contributions = self.gradients[tensor]
        if len(contributions) == 1:
            return contributions[0]
        total = f"d.{tensor.name}.sum"
        self.sizes[total] = tensor.size
        time = self.device.time(0, (len(contributions) + 1) * tensor.size)
        self._task(f"{tensor.name}.accumulate", time, list(contributions), [total], "backward")
        return total

    def _task(self, name: str, time: float, reads: list[str], writes: list[str], phase: str) -> None:
        self.tasks.append({"id": name, "time": time, "reads": reads, "writes": writes, "phase": phase})


def _unet_operations(
    kernels: ImageKernels, depth: int, channels: int, image: int, classes: int
) -> tuple[list[Operation], Tensor]:
    x = source = kernels.image("x", 3, image)
    operations: list[Operation] = []
    skips: list[Image] = []
    for level in range(depth + 1):
        if level:
            pool, x = kernels.max_pool(f"pool{level}", x, kernel=2, stride=2)
            operations.append(pool)
        more, x = _double(kernels, f"down{level}", x, channels * 2**level)
        operations += more
        skips.append(x)
    for level in reversed(range(depth)):
        up, x = kernels.upsampling(f"up{level}", x, channels * 2**level)
        joined, x = kernels.concatenate(f"join{level}", skips[level], x)
        more, x = _double(kernels, f"merge{level}", x, channels * 2**level)
        operations += [up, joined, *more]
    head, _ = kernels.convolution("head", x, classes, kernel=1, bias=True)
    return [*operations, head], source.tensor


def _double(kernels: ImageKernels, name: str, x: Image, channels: int) -> tuple[list[Operation], Image]:
    first, x = kernels.unit(f"{name}.1", x, channels, kernel=3)
    second, x = kernels.unit(f"{name}.2", x, channels, kernel=3)
    return [*first, *second], x
