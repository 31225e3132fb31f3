"""Training graphs of networks as kind `dag`: U-Net and a multilayer perceptron, forward and backward tasks."""

from __future__ import annotations

from remat.generate import check
from remat.generate.devices import DEFAULT
from remat.generate.document import Document
from remat.generate.networks.images import FLOAT32, Image, ImageKernels
from remat.generate.networks.operations import BYTES, Operation, Tensor, roofline
from remat.generate.networks.training import Network, training_graph

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
    device: str = DEFAULT,
) -> Document:
    """Return the training graph of a U-Net: encoder, decoder, and the skips that live from one to the other.

    The network is figure 1 of Ronneberger, Fischer and Brox 2015, *U-Net: convolutional networks for biomedical image
    segmentation*, with padded convolutions and batch norms. It has 23 convolutions and 31 million parameters by
    default.

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
        Type of activations, gradients and weights.
    keep_gradients : bool
        Whether the weights' gradients stay resident to the end (as `outputs`).
    flops : float, optional
        FLOP/s; default: the device's for `dtype`.
    bandwidth : float, optional
        Memory bandwidth in bytes/s; default: the device's.
    device : str
        A name of the shipped table.

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
    machine = roofline(dtype, flops, bandwidth, device)
    network = Network(
        operations,
        source,
        loss_size=FLOAT32 * batch * classes * image * image,
        element=BYTES[dtype],
        name=f"unet_d{depth}_c{channels}_b{batch}_{image}_{dtype}",
        what=f"U-Net, depth {depth}, {channels} channels, {batch} images of {image}x{image}, {dtype}",
    )
    return training_graph(network, machine, keep_gradients=keep_gradients)


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
    device: str = DEFAULT,
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
    dtype, keep_gradients, flops, bandwidth, device
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
    network = Network(
        operations,
        source,
        loss_size=FLOAT32 * batch * width,
        element=element,
        name=f"mlp_l{layers}_w{width}_b{batch}_{dtype}",
        what=f"Multilayer perceptron, {layers} layers of {width}, batch {batch}, {dtype}",
    )
    return training_graph(network, roofline(dtype, flops, bandwidth, device), keep_gradients=keep_gradients)


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
