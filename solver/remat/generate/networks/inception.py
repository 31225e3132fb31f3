"""Layers of Inception-v3 (Szegedy et al. 2016), as the common implementations have them."""

from __future__ import annotations

from collections.abc import Sequence

from remat.generate.networks.images import Image, ImageKernels
from remat.generate.networks.operations import Operation

SMALLEST_INCEPTION = 75
"""Smallest edge of an image that the last layer supports."""

Kernel = int | tuple[int, int]


def inception_layers(kernels: ImageKernels, image: int, classes: int) -> tuple[list[Operation], Image]:
    """Return the operations, from the image to the logits, and the logits."""
    return _Inception(kernels).layers(image, classes)


class _Inception:
    """The layers of the network in the making: modules of branches that are joined."""

    def __init__(self, kernels: ImageKernels) -> None:
        self.kernels = kernels
        self.operations: list[Operation] = []

    def layers(self, image: int, classes: int) -> tuple[list[Operation], Image]:
        """Table 1, with the modules of figures 5 (A), 10 (B, D), 6 (C) and 7 (E)."""
        x = self._unit("stem1", self.kernels.image("x", 3, image), 32, 3, stride=2, padding=0)
        x = self._unit("stem2", x, 32, 3, padding=0)
        x = self._max("stem.pool1", self._unit("stem3", x, 64, 3))
        x = self._unit("stem4", x, 80, 1)
        x = self._max("stem.pool2", self._unit("stem5", x, 192, 3, padding=0))
        for number, pooled in enumerate((32, 64, 64), 1):
            x = self._a(f"a{number}", x, pooled)
        x = self._b("b", x)
        for number, width in enumerate((128, 160, 160, 192), 1):
            x = self._c(f"c{number}", x, width)
        x = self._d("d", x)
        for number in (1, 2):
            x = self._e(f"e{number}", x)
        average, x = self.kernels.average("average", x)
        dropout, x = self.kernels.dropout("dropout", x)
        classify, x = self.kernels.linear("classify", x, classes)
        return [*self.operations, average, dropout, classify], x

    def _unit(
        self, name: str, x: Image, channels: int, kernel: Kernel, *, stride: int = 1, padding: int | None = None
    ) -> Image:
        """Convolution, batch norm, rectifier."""
        convolution, x = self.kernels.convolution(
            f"{name}.conv", x, channels, kernel=kernel, stride=stride, padding=padding
        )
        norm, x = self.kernels.norm(f"{name}.norm", x)
        relu, x = self.kernels.relu(f"{name}.relu", x)
        self.operations += [convolution, norm, relu]
        return x

    def _row(self, name: str, x: Image, *units: tuple[int, Kernel]) -> Image:
        """Units one after the other."""
        for number, (channels, kernel) in enumerate(units, 1):
            x = self._unit(f"{name}.{number}", x, channels, kernel)
        return x

    def _max(self, name: str, x: Image) -> Image:
        pool, x = self.kernels.max_pool(name, x, kernel=3, stride=2)
        self.operations.append(pool)
        return x

    def _pooled(self, name: str, x: Image, channels: int) -> Image:
        pool, x = self.kernels.average_pool(f"{name}.pool", x, kernel=3, stride=1, padding=1)
        self.operations.append(pool)
        return self._unit(f"{name}.pooled", x, channels, 1)

    def _joined(self, name: str, branches: Sequence[Image]) -> Image:
        join, x = self.kernels.concatenate(f"{name}.join", *branches)
        self.operations.append(join)
        return x

    def _a(self, name: str, x: Image, pooled: int) -> Image:
        one = self._row(f"{name}.one", x, (64, 1))
        five = self._row(f"{name}.five", x, (48, 1), (64, 5))
        three = self._row(f"{name}.three", x, (64, 1), (96, 3), (96, 3))
        return self._joined(name, [one, five, three, self._pooled(name, x, pooled)])

    def _b(self, name: str, x: Image) -> Image:
        three = self._unit(f"{name}.three", x, 384, 3, stride=2, padding=0)
        double = self._row(f"{name}.double", x, (64, 1), (96, 3))
        double = self._unit(f"{name}.double.3", double, 96, 3, stride=2, padding=0)
        return self._joined(name, [three, double, self._max(f"{name}.pool", x)])

    def _c(self, name: str, x: Image, width: int) -> Image:
        one = self._row(f"{name}.one", x, (192, 1))
        seven = self._row(f"{name}.seven", x, (width, 1), (width, (1, 7)), (192, (7, 1)))
        tall, flat = (width, (7, 1)), (width, (1, 7))
        double = self._row(f"{name}.double", x, (width, 1), tall, flat, tall, (192, (1, 7)))
        return self._joined(name, [one, seven, double, self._pooled(name, x, 192)])

    def _d(self, name: str, x: Image) -> Image:
        three = self._unit(f"{name}.three.2", self._row(f"{name}.three", x, (192, 1)), 320, 3, stride=2, padding=0)
        seven = self._row(f"{name}.seven", x, (192, 1), (192, (1, 7)), (192, (7, 1)))
        seven = self._unit(f"{name}.seven.4", seven, 192, 3, stride=2, padding=0)
        return self._joined(name, [three, seven, self._max(f"{name}.pool", x)])

    def _e(self, name: str, x: Image) -> Image:
        one = self._row(f"{name}.one", x, (320, 1))
        three = self._row(f"{name}.three", x, (384, 1))
        double = self._row(f"{name}.double", x, (448, 1), (384, 3))
        parts = [
            self._row(f"{name}.{part}.{side}", y, (384, kernel))
            for part, y in (("three", three), ("double", double))
            for side, kernel in (("flat", (1, 3)), ("tall", (3, 1)))
        ]
        return self._joined(name, [one, *parts, self._pooled(name, x, 192)])
