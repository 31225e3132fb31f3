"""Analytic ResNet chains from the published layer table.

The table is table 1 of He, Zhang, Ren and Sun 2016, *Deep residual learning for image recognition*. As in common
implementations, the 3x3 convolution of a bottleneck has the stride (4.1 instead of 3.8 billion multiply-adds for
ResNet-50 at 224 pixels).
"""

from __future__ import annotations

from dataclasses import replace

from remat.generate import check
from remat.generate.devices import DEFAULT
from remat.generate.document import SECONDS_AND_BYTES, Document, document
from remat.generate.networks.images import FLOAT32, Image, ImageKernels
from remat.generate.networks.operations import BYTES, Operation, check_stages, roofline, stage

BLOCKS = {
    "18": (2, 2, 2, 2),
    "34": (3, 4, 6, 3),
    "50": (3, 4, 6, 3),
    "101": (3, 4, 23, 3),
    "152": (3, 8, 36, 3),
}
"""Blocks in each of the four groups; 50 and deeper have bottleneck blocks (1x1, 3x3, 1x1)."""

WIDTHS = (64, 128, 256, 512)
SMALLEST_IMAGE = 32


def resnet(
    *,
    depth: str = "50",
    image: int = 224,
    batch: int = 32,
    classes: int = 1000,
    dtype: str = "fp32",
    optimizer: str = "omitted",
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the training step of a ResNet as a chain: stem, residual blocks, classifier.

    Parameters
    ----------
    depth : {"18", "34", "50", "101", "152"}
    image : int
        Edge of the square images in pixels, at least 32.
    batch, classes : int
    dtype : {"fp16", "bf16", "fp32"}
        Type of activations, gradients and weights.
    optimizer : {"momentum", "sgd", "none", "omitted"}
        What stays resident: weights, gradients and (momentum) one state each, at the size of `dtype`; omitted
        counts nothing, the budget then speaks of activations alone.
    flops : float, optional
        FLOP/s; default: the device's for `dtype`.
    bandwidth : float, optional
        Memory bandwidth in bytes/s; default: the device's.
    device : str
        A name of the shipped table.

    Returns
    -------
    dict
        Kind ``chain``, seconds and bytes. Rectifiers work in place; a block saves the outputs of its
        convolutions, the rectified ones and the norms' statistics. Equal blocks are one stage with `repeat`.

    Raises
    ------
    ValueError
        A parameter out of range, or sizes beyond 2^62 bytes.
    """
    check.choice("depth", depth, tuple(BLOCKS))
    check.choice("dtype", dtype, tuple(BYTES))
    copies = {"momentum": 3, "sgd": 2, "none": 2, "omitted": 0}
    check.choice("optimizer", optimizer, tuple(copies))
    check.integer("image", image, minimum=SMALLEST_IMAGE, maximum=1_000_000)
    check.integer("batch", batch, minimum=1)
    check.integer("classes", classes, minimum=1)
    machine = roofline(dtype, flops, bandwidth, device)
    kernels = ImageKernels(batch, BYTES[dtype])
    layers = _layers(kernels, depth, image, classes)
    stages = [
        stage(name=name, operations=layer, device=machine, input_gradient=index > 0, repeat=repeat)
        for index, (name, layer, repeat) in enumerate(layers)
    ]
    weights = sum(repeat * operation.weights for _, layer, repeat in layers for operation in layer)
    static = copies[optimizer] * weights
    check_stages(stages, static, "make the batch or the image smaller")
    softmax = FLOAT32 * batch * classes
    logits = stages[-1]["output_size"]
    return document(
        kind="chain",
        name=f"resnet{depth}_b{batch}_{image}_{dtype}",
        description=(
            f"ResNet-{depth}, {batch} images of {image}x{image}, {classes} classes, {dtype}, "
            f"{weights // BYTES[dtype]:,} parameters, optimizer {optimizer}; published layer table, roofline times "
            f"at {machine.flops / 1e12:g} TFLOP/s and {machine.bandwidth / 1e12:g} TB/s"
        ),
        units=SECONDS_AND_BYTES,
        static_memory=static or None,
        input_size=layers[0][1][0].reads[0].size,
        stages=stages,
        loss={"time": machine.time(0, 2 * logits + 2 * softmax), "workspace": softmax},
        input_gradient=False,
    )


Layer = tuple[str, list[Operation], int]


def _layers(kernels: ImageKernels, depth: str, image: int, classes: int) -> list[Layer]:
    """Name, operations and number of every stage; equal neighbours come as one."""
    x = kernels.image("x", 3, image)
    operations, y = kernels.unit("stem", x, WIDTHS[0], kernel=7, stride=2)
    pool, y = kernels.max_pool("pool", y, kernel=3, stride=2, padding=1)
    layers: list[Layer] = [("stem", [*operations, pool], 1)]
    build = _bottleneck if int(depth) >= 50 else _basic
    for group, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS[depth], strict=True)):
        name = f"conv{group + 2}"
        if build is _basic and group == 0:
            operations, y = build(kernels, y, width, 1)
            layers.append((name, operations, blocks))
            continue
        operations, y = build(kernels, y, width, 1 if group == 0 else 2)
        layers.append((f"{name}_1", operations, 1))
        if blocks > 1:
            operations, y = build(kernels, y, width, 1)
            layers.append((f"{name}_x", operations, blocks - 1))
    average, pooled = kernels.average("average", y)
    classify, _ = kernels.convolution("classify", pooled, classes, kernel=1, bias=True)
    layers.append(("classifier", [average, classify], 1))
    return layers


def _basic(kernels: ImageKernels, x: Image, width: int, stride: int) -> tuple[list[Operation], Image]:
    first, y = kernels.unit("1", x, width, kernel=3, stride=stride)
    second, y = kernels.unit("2", y, width, kernel=3, rectify=False)
    return _with_shortcut(kernels, x, [*first, *second], y, stride)


def _bottleneck(kernels: ImageKernels, x: Image, width: int, stride: int) -> tuple[list[Operation], Image]:
    first, y = kernels.unit("1", x, width, kernel=1)
    second, y = kernels.unit("2", y, width, kernel=3, stride=stride)
    third, y = kernels.unit("3", y, 4 * width, kernel=1, rectify=False)
    return _with_shortcut(kernels, x, [*first, *second, *third], y, stride)


def _with_shortcut(
    kernels: ImageKernels, x: Image, branch: list[Operation], y: Image, stride: int
) -> tuple[list[Operation], Image]:
    shortcut, operations = x, branch
    if (x.channels, x.edge) != (y.channels, y.edge):
        down, shortcut = kernels.unit("down", x, y.channels, kernel=1, stride=stride, rectify=False)
        operations = [*branch, *down]
    joined, total = kernels.sum("sum", y, shortcut)
    relu, output = kernels.relu("relu", total)
    # Renamed, so that the next block's input and output are not called alike.
    return [*operations, joined, relu], replace(output, tensor=replace(output.tensor, name="x"))
