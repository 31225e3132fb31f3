"""Training graphs of networks that classify images: VGG, ResNet, DenseNet, Inception, MobileNet, FCN-8s.

Layer tables are the published ones, as the common implementations have them:

- VGG: Simonyan and Zisserman 2015, *Very deep convolutional networks for large-scale image recognition*, table 1,
  columns A, B, D and E; batch norms after Ioffe and Szegedy 2015.
- ResNet: He et al. 2016, table 1 (see `remat.generate.networks.resnet`). The in-place variant uses the norms and
  rectifiers of Rota Bulo, Porzi and Kontschieder 2018, *In-place activated BatchNorm for memory-optimized training of
  DNNs*: one in-place kernel, whose backward reads its output and inverts the activation (algorithms 1 and 2).
- DenseNet: Huang et al. 2017, *Densely connected convolutional networks*, table 1; shared storage and recomputed norms
  after Pleiss et al. 2017, *Memory-efficient implementation of DenseNets*, section 3.
- Inception-v3: Szegedy et al. 2016, *Rethinking the Inception architecture for computer vision*, figures 5 to 7 and 10,
  and table 1, without the auxiliary classifier: see `remat.generate.networks.inception`.
- MobileNet: Howard et al. 2017, *MobileNets: efficient convolutional neural networks for mobile vision applications*,
  table 1, of full width.
- FCN-8s classifies pixels: Long, Shelhamer and Darrell 2015, *Fully convolutional networks for semantic segmentation*,
  figure 3, on VGG-16. Convolutions keep edges; the authors instead pad the image by 100 pixels and crop.

Rectifiers, sums of residual streams and of gradients work in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remat.generate import check
from remat.generate.devices import DEFAULT
from remat.generate.document import Document
from remat.generate.networks.images import FLOAT32, Image, ImageKernels
from remat.generate.networks.inception import SMALLEST_INCEPTION, inception_layers
from remat.generate.networks.operations import BYTES, Operation, roofline
from remat.generate.networks.resnet import BLOCKS, SMALLEST_IMAGE, WIDTHS
from remat.generate.networks.training import Network, training_graph

Layers = tuple[list[Operation], Image]

VGG = {
    "11": (1, 1, 2, 2, 2),
    "13": (2, 2, 2, 2, 2),
    "16": (2, 2, 3, 3, 3),
    "19": (2, 2, 4, 4, 4),
}
"""Convolutions in each of the five groups, which a pool ends."""

VGG_WIDTHS = (64, 128, 256, 512, 512)

MOBILENET = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""Channels and stride of each pair of a depthwise and a pointwise convolution."""

DENSENET = {
    # blocks, growth rate, channels of the stem
    "121": ((6, 12, 24, 16), 32, 64),
    "161": ((6, 12, 36, 24), 48, 96),
    "169": ((6, 12, 32, 32), 32, 64),
    "201": ((6, 12, 48, 32), 32, 64),
}


def vgg(
    *,
    depth: str = "16",
    image: int = 224,
    batch: int = 32,
    classes: int = 1000,
    norm: bool = False,
    dtype: str = "fp32",
    keep_gradients: bool = True,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the training graph of a VGG.

    Parameters
    ----------
    depth : {"11", "13", "16", "19"}
    image : int
        Edge of the square images in pixels, a multiple of 32.
    batch, classes : int
    norm : bool
        Whether each convolution has a batch norm, and no bias.
    dtype : {"fp16", "bf16", "fp32"}
        Type of activations, gradients and weights.
    keep_gradients : bool
        Whether the weights' gradients stay resident to the end (as `outputs`).
    flops, bandwidth : float, optional
        Default: those of the device for `dtype`.
    device : str
        A name of the shipped table.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; ValueError for a parameter out of range, or sizes beyond 2^62 bytes.
    """
    check.choice("depth", depth, tuple(VGG))
    if check.integer("image", image, minimum=32, maximum=1_000_000) % 32:
        raise ValueError(f"image {image} is not a multiple of 32; take {round(image / 32) * 32}")
    kernels = _kernels(batch, dtype)
    layers = _vgg(kernels, depth, image, check.integer("classes", classes, minimum=1), norm)
    return _trained(
        kernels,
        layers,
        name=f"vgg{depth}{'_norm' if norm else ''}_b{batch}_{image}_{dtype}",
        what=f"VGG-{depth}{' with batch norms' if norm else ''}, {batch} images of {image}x{image}, {dtype}",
        keep_gradients=keep_gradients,
        made=(dtype, flops, bandwidth, device),
    )


def resnet_graph(
    *,
    depth: str = "50",
    image: int = 224,
    batch: int = 32,
    classes: int = 1000,
    norm: str = "plain",
    dtype: str = "fp32",
    keep_gradients: bool = True,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the training graph of a ResNet.

    Parameters
    ----------
    depth : {"18", "34", "50", "101", "152"}
    image : int
        Edge of the square images in pixels, at least 32.
    norm : {"plain", "in-place"}
        Batch norms and rectifiers, or in-place activated batch norms.
    batch, classes, dtype, keep_gradients, flops, bandwidth, device
        As for `vgg`.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; ValueError for a parameter out of range, or sizes beyond 2^62 bytes.
    """
    check.choice("depth", depth, tuple(BLOCKS))
    check.choice("norm", norm, ("plain", "in-place"))
    check.integer("image", image, minimum=SMALLEST_IMAGE, maximum=1_000_000)
    kernels = _kernels(batch, dtype)
    layers = _resnet(kernels, depth, image, check.integer("classes", classes, minimum=1), in_place=norm == "in-place")
    return _trained(
        kernels,
        layers,
        name=f"resnet{depth}_graph{'' if norm == 'plain' else '_in_place'}_b{batch}_{image}_{dtype}",
        what=f"ResNet-{depth}, {'' if norm == 'plain' else 'in-place activated batch norms, '}{batch} images of "
        f"{image}x{image}, {dtype}",
        keep_gradients=keep_gradients,
        made=(dtype, flops, bandwidth, device),
    )


def densenet(
    *,
    depth: str = "121",
    image: int = 224,
    batch: int = 32,
    classes: int = 1000,
    features: str = "shared",
    norm: str = "again",
    dtype: str = "fp32",
    keep_gradients: bool = True,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the training graph of a DenseNet.

    Parameters
    ----------
    depth : {"121", "161", "169", "201"}
    image : int
        Edge of the square images in pixels, at least 32.
    features : {"shared", "copied"}
        The features of a block lie side by side in one storage, and each layer reads those before it; or each layer
        has a storage of its own for all that it reads, into which they are copied.
    norm : {"again", "saved"}
        Separate tasks recompute the results of norms, rectifiers and copies before the backward needs them, or these
        results are saved.
    batch, classes, dtype, keep_gradients, flops, bandwidth, device
        As for `vgg`.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; ValueError for a parameter out of range, or sizes beyond 2^62 bytes.
    """
    check.choice("depth", depth, tuple(DENSENET))
    check.choice("features", features, ("shared", "copied"))
    check.choice("norm", norm, ("again", "saved"))
    check.integer("image", image, minimum=SMALLEST_IMAGE, maximum=1_000_000)
    kernels = _kernels(batch, dtype)
    builder = _DenseNet(kernels, shared=features == "shared", again=norm == "again")
    layers = builder.layers(depth, image, check.integer("classes", classes, minimum=1))
    return _trained(
        kernels,
        layers,
        name=f"densenet{depth}_{features}_{norm}_b{batch}_{image}_{dtype}",
        what=f"DenseNet-{depth}, {features} features, norms {'made ' if norm == 'again' else ''}{norm}, {batch} images "
        f"of {image}x{image}, {dtype}",
        keep_gradients=keep_gradients,
        made=(dtype, flops, bandwidth, device),
    )


def inception(
    *,
    image: int = 299,
    batch: int = 32,
    classes: int = 1000,
    dtype: str = "fp32",
    keep_gradients: bool = True,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the training graph of Inception-v3, without its auxiliary classifier.

    Parameters
    ----------
    image : int
        Edge of the square images in pixels, at least 75.
    batch, classes, dtype, keep_gradients, flops, bandwidth, device
        As for `vgg`.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; ValueError for a parameter out of range, or sizes beyond 2^62 bytes.
    """
    check.integer("image", image, minimum=SMALLEST_INCEPTION, maximum=1_000_000)
    kernels = _kernels(batch, dtype)
    layers = inception_layers(kernels, image, check.integer("classes", classes, minimum=1))
    return _trained(
        kernels,
        layers,
        name=f"inception_v3_b{batch}_{image}_{dtype}",
        what=f"Inception-v3, {batch} images of {image}x{image}, {dtype}",
        keep_gradients=keep_gradients,
        made=(dtype, flops, bandwidth, device),
    )


def mobilenet(
    *,
    image: int = 224,
    batch: int = 32,
    classes: int = 1000,
    dtype: str = "fp32",
    keep_gradients: bool = True,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the training graph of a MobileNet.

    Parameters
    ----------
    image : int
        Edge of the square images in pixels, at least 32.
    batch, classes, dtype, keep_gradients, flops, bandwidth, device
        As for `vgg`.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; ValueError for a parameter out of range, or sizes beyond 2^62 bytes.
    """
    check.integer("image", image, minimum=SMALLEST_IMAGE, maximum=1_000_000)
    kernels = _kernels(batch, dtype)
    return _trained(
        kernels,
        _mobilenet(kernels, image, check.integer("classes", classes, minimum=1)),
        name=f"mobilenet_b{batch}_{image}_{dtype}",
        what=f"MobileNet, {batch} images of {image}x{image}, {dtype}",
        keep_gradients=keep_gradients,
        made=(dtype, flops, bandwidth, device),
    )


def fcn8(
    *,
    image: int = 224,
    batch: int = 32,
    classes: int = 21,
    dtype: str = "fp32",
    keep_gradients: bool = True,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the training graph of an FCN-8s on VGG-16, which classifies pixels.

    Parameters
    ----------
    image : int
        Edge of the square images in pixels, a multiple of 32.
    batch, classes, dtype, keep_gradients, flops, bandwidth, device
        As for `vgg`.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; ValueError for a parameter out of range, or sizes beyond 2^62 bytes.
    """
    if check.integer("image", image, minimum=32, maximum=1_000_000) % 32:
        raise ValueError(f"image {image} is not a multiple of 32; take {round(image / 32) * 32}")
    kernels = _kernels(batch, dtype)
    return _trained(
        kernels,
        _fcn8(kernels, image, check.integer("classes", classes, minimum=1)),
        name=f"fcn8_vgg16_b{batch}_{image}_{dtype}",
        what=f"FCN-8s on VGG-16, {batch} images of {image}x{image}, {dtype}",
        keep_gradients=keep_gradients,
        made=(dtype, flops, bandwidth, device),
    )


def _kernels(batch: int, dtype: str) -> ImageKernels:
    check.choice("dtype", dtype, tuple(BYTES))
    return ImageKernels(check.integer("batch", batch, minimum=1), BYTES[dtype])


def _trained(
    kernels: ImageKernels,
    layers: Layers,
    *,
    name: str,
    what: str,
    keep_gradients: bool,
    made: tuple[str, float | None, float | None, str],
) -> Document:
    operations, logits = layers
    loss_size = FLOAT32 * kernels.batch * logits.channels * logits.edge**2
    source = operations[0].reads[0]
    network = Network(operations, source, loss_size=loss_size, element=kernels.element, name=name, what=what)
    return training_graph(network, roofline(*made), keep_gradients=keep_gradients, in_place=True)


def _classified(kernels: ImageKernels, operations: Sequence[Operation], x: Image, classes: int) -> Layers:
    average, pooled = kernels.average("average", x)
    classify, logits = kernels.linear("classify", pooled, classes)
    return [*operations, average, classify], logits


def _vgg(kernels: ImageKernels, depth: str, image: int, classes: int, norm: bool) -> Layers:
    operations, pools = _vgg_groups(kernels, depth, image, norm)
    x = pools[-1]
    for number in (6, 7):
        linear, x = kernels.linear(f"fc{number}", x, 4096)
        relu, x = kernels.relu(f"fc{number}.relu", x)
        dropout, x = kernels.dropout(f"fc{number}.dropout", x)
        operations += [linear, relu, dropout]
    classify, logits = kernels.linear("fc8", x, classes)
    return [*operations, classify], logits


def _vgg_groups(kernels: ImageKernels, depth: str, image: int, norm: bool) -> tuple[list[Operation], list[Image]]:
    """Return the convolutions of a VGG, and the outputs of its five pools."""
    x = kernels.image("x", 3, image)
    operations: list[Operation] = []
    pools: list[Image] = []
    for group, (width, count) in enumerate(zip(VGG_WIDTHS, VGG[depth], strict=True), 1):
        for number in range(1, count + 1):
            name = f"conv{group}_{number}"
            if norm:
                unit, x = kernels.unit(name, x, width, kernel=3)
                operations += unit
                continue
            convolution, x = kernels.convolution(name, x, width, kernel=3, bias=True)
            relu, x = kernels.relu(f"{name}.relu", x)
            operations += [convolution, relu]
        pool, x = kernels.max_pool(f"pool{group}", x, kernel=2, stride=2)
        operations.append(pool)
        pools.append(x)
    return operations, pools


def _fcn8(kernels: ImageKernels, image: int, classes: int) -> Layers:
    operations, pools = _vgg_groups(kernels, "16", image, norm=False)
    x = pools[-1]
    for number, kernel in ((6, 7), (7, 1)):
        convolution, x = kernels.convolution(f"fc{number}", x, 4096, kernel=kernel, bias=True)
        relu, x = kernels.relu(f"fc{number}.relu", x)
        dropout, x = kernels.dropout(f"fc{number}.dropout", x)
        operations += [convolution, relu, dropout]
    score, x = kernels.convolution("score", x, classes, kernel=1, bias=True)
    operations.append(score)
    for number in (4, 3):
        up, x = kernels.upsampling(f"up{number}", x, classes, kernel=4, bias=False)
        skip, scored = kernels.convolution(f"score{number}", pools[number - 1], classes, kernel=1, bias=True)
        joined, x = kernels.sum(f"sum{number}", x, scored, in_place=True)
        operations += [up, skip, joined]
    up, x = kernels.upsampling("up", x, classes, kernel=16, stride=8, bias=False)
    return [*operations, up], x


def _mobilenet(kernels: ImageKernels, image: int, classes: int) -> Layers:
    operations, x = kernels.unit("stem", kernels.image("x", 3, image), 32, kernel=3, stride=2)
    for number, (channels, stride) in enumerate(MOBILENET, 1):
        depthwise, y = kernels.convolution(
            f"{number}.depthwise.conv", x, x.channels, kernel=3, stride=stride, groups=x.channels
        )
        norm, y = kernels.norm(f"{number}.depthwise.norm", y)
        relu, y = kernels.relu(f"{number}.depthwise.relu", y)
        pointwise, x = kernels.unit(f"{number}.pointwise", y, channels, kernel=1)
        operations += [depthwise, norm, relu, *pointwise]
    return _classified(kernels, operations, x, classes)


def _resnet(kernels: ImageKernels, depth: str, image: int, classes: int, *, in_place: bool) -> Layers:
    def unit(name: str, read: Image, channels: int, *, kernel: int, stride: int = 1, rectify: bool = True) -> Layers:
        if not in_place:
            return kernels.unit(name, read, channels, kernel=kernel, stride=stride, rectify=rectify)
        convolution, convolved = kernels.convolution(f"{name}.conv", read, channels, kernel=kernel, stride=stride)
        norm, normed = kernels.activated_norm(f"{name}.norm", convolved)
        return [convolution, norm], normed

    operations, x = unit("stem", kernels.image("x", 3, image), WIDTHS[0], kernel=7, stride=2)
    pool, x = kernels.max_pool("pool", x, kernel=3, stride=2, padding=1)
    operations.append(pool)
    for group, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS[depth], strict=True), 2):
        for number in range(1, blocks + 1):
            stride = 2 if number == 1 and group > 2 else 1
            more, x = _residual(kernels, unit, f"conv{group}_{number}", x, width, stride, deep=int(depth) >= 50)
            operations += more
    return _classified(kernels, operations, x, classes)


def _residual(
    kernels: ImageKernels, unit: Callable[..., Layers], name: str, x: Image, width: int, stride: int, *, deep: bool
) -> Layers:
    """Return a residual block: two convolutions, or a bottleneck of three."""
    if deep:
        operations, y = unit(f"{name}.1", x, width, kernel=1)
        more, y = unit(f"{name}.2", y, width, kernel=3, stride=stride)
        last, y = unit(f"{name}.3", y, 4 * width, kernel=1, rectify=False)
        operations = [*operations, *more, *last]
    else:
        operations, y = unit(f"{name}.1", x, width, kernel=3, stride=stride)
        last, y = unit(f"{name}.2", y, width, kernel=3, rectify=False)
        operations = [*operations, *last]
    shortcut = x
    if (x.channels, x.edge) != (y.channels, y.edge):
        down, shortcut = unit(f"{name}.down", x, y.channels, kernel=1, stride=stride, rectify=False)
        operations += down
    # An activated norm saves its output, so a sum with it needs a new tensor.
    saved = y.tensor in operations[-1].saves or any(y.tensor in operation.saves for operation in operations)
    joined, total = kernels.sum(f"{name}.sum", y, shortcut, in_place=not saved)
    relu, rectified = kernels.relu(f"{name}.relu", total)
    return [*operations, joined, relu], rectified


class _DenseNet:
    """The layers of a DenseNet in the making."""

    def __init__(self, kernels: ImageKernels, *, shared: bool, again: bool) -> None:
        self.kernels, self.shared, self.again = kernels, shared, again
        self.operations: list[Operation] = []

    def layers(self, depth: str, image: int, classes: int) -> Layers:
        blocks, growth, channels = DENSENET[depth]
        kernels = self.kernels
        stem, x = kernels.unit("stem", kernels.image("x", 3, image), channels, kernel=7, stride=2)
        pool, x = kernels.max_pool("pool", x, kernel=3, stride=2, padding=1)
        self.operations += [*stem, pool]
        for number, count in enumerate(blocks, 1):
            features = [x]
            for layer in range(1, count + 1):
                features.append(self._layer(f"dense{number}_{layer}", features, growth))
            last = number == len(blocks)
            name = "norm" if last else f"transition{number}"
            x = self._normed(name, features)
            if not last:
                x = self._convolved(name, x, x.channels // 2, kernel=1)
                average, x = kernels.average_pool(f"{name}.pool", x, kernel=2, stride=2)
                self.operations.append(average)
        return _classified(kernels, self.operations, x, classes)

    def _layer(self, name: str, features: Sequence[Image], growth: int) -> Image:
        x = self._convolved(f"{name}.1", self._normed(f"{name}.1", features), 4 * growth, kernel=1)
        return self._convolved(f"{name}.2", self._normed(f"{name}.2", [x]), growth, kernel=3)

    def _normed(self, name: str, reads: Sequence[Image]) -> Image:
        """Norm and rectifier of all features up to here."""
        kernels, again = self.kernels, self.again
        if len(reads) > 1 and not self.shared:
            copied, joined = kernels.concatenate(f"{name}.copy", *reads, again=again)
            self.operations.append(copied)
            reads = [joined]
        norm, x = kernels.norm(f"{name}.norm", *reads, again=again)
        relu, x = kernels.relu(f"{name}.relu", x, again=again)
        self.operations += [norm, relu]
        return x

    def _convolved(self, name: str, read: Image, channels: int, *, kernel: int) -> Image:
        convolution, x = self.kernels.convolution(f"{name}.conv", read, channels, kernel=kernel)
        self.operations.append(convolution)
        return x
