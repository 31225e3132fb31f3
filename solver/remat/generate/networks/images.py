"""Convolutions, norms and pools as operations: what the image networks (ResNet, U-Net) are built from."""

from __future__ import annotations

from dataclasses import dataclass

from remat.generate.networks.operations import Operation, Tensor

FLOAT32 = 4
INDEX = 8  # bytes of one entry of a max pool's index (int64)


@dataclass(frozen=True, slots=True)
class Image:
    """A batch of square images: channels and edge length, with the tensor that holds them."""

    tensor: Tensor
    channels: int
    edge: int


@dataclass(frozen=True, slots=True)
class ImageKernels:
    """Operations on `batch` images at `element` bytes per entry."""

    batch: int
    element: int

    def image(self, name: str, channels: int, edge: int) -> Image:
        """Return a fresh image tensor."""
        return Image(Tensor(name, self.element * self.batch * channels * edge * edge), channels, edge)

    def convolution(
        self,
        name: str,
        read: Image,
        channels: int,
        *,
        kernel: int,
        stride: int = 1,
        padding: int | None = None,
        bias: bool = False,
    ) -> tuple[Operation, Image]:
        """Convolve: ``2*B*K*E^2*C*k^2`` FLOP for C channels in, K out and an output of edge E.

        Padding defaults to half the kernel. The backward saves the input.
        """
        around = kernel // 2 if padding is None else padding
        edge = (read.edge + 2 * around - kernel) // stride + 1
        write = self.image(name, channels, edge)
        products = channels * read.channels * kernel * kernel
        operation = Operation(
            name,
            (read.tensor,),
            (write.tensor,),
            (read.tensor,),
            flops=2 * self.batch * edge * edge * products,
            weights=self.element * (products + (channels if bias else 0)),
        )
        return operation, write

    def upsampling(self, name: str, read: Image, channels: int) -> tuple[Operation, Image]:
        """Transposed convolution 2x2 with stride 2: twice the edge."""
        write = self.image(name, channels, 2 * read.edge)
        products = 4 * channels * read.channels
        operation = Operation(
            name,
            (read.tensor,),
            (write.tensor,),
            (read.tensor,),
            flops=2 * self.batch * read.edge * read.edge * products,
            weights=self.element * (products + channels),
        )
        return operation, write

    def norm(self, name: str, read: Image) -> tuple[Operation, Image]:
        """Batch norm; saves its input and the fp32 mean and deviation of each channel."""
        write = self.image(name, read.channels, read.edge)
        kept = Tensor(f"{name}.statistics", 2 * FLOAT32 * read.channels, differentiable=False)
        operation = Operation(
            name, (read.tensor,), (write.tensor, kept), (read.tensor, kept), weights=2 * self.element * read.channels
        )
        return operation, write

    def relu(self, name: str, read: Image) -> tuple[Operation, Image]:
        """In-place rectifier; saves its output."""
        write = self.image(name, read.channels, read.edge)
        return Operation(name, (read.tensor,), (write.tensor,), (write.tensor,), in_place=True), write

    def unit(
        self, name: str, read: Image, channels: int, *, kernel: int, stride: int = 1, rectify: bool = True
    ) -> tuple[list[Operation], Image]:
        """Convolution, batch norm and, by default, rectifier."""
        convolution, convolved = self.convolution(f"{name}.conv", read, channels, kernel=kernel, stride=stride)
        norm, normed = self.norm(f"{name}.norm", convolved)
        if not rectify:
            return [convolution, norm], normed
        relu, rectified = self.relu(f"{name}.relu", normed)
        return [convolution, norm, relu], rectified

    def max_pool(
        self, name: str, read: Image, *, kernel: int, stride: int, padding: int = 0
    ) -> tuple[Operation, Image]:
        """Max pool; saves the index of each maximum."""
        edge = (read.edge + 2 * padding - kernel) // stride + 1
        write = self.image(name, read.channels, edge)
        indices = Tensor(f"{name}.indices", write.tensor.size // self.element * INDEX, differentiable=False)
        return Operation(name, (read.tensor,), (write.tensor, indices), (read.tensor, indices)), write

    def average(self, name: str, read: Image) -> tuple[Operation, Image]:
        """Mean over each channel; its backward needs nothing."""
        write = self.image(name, read.channels, 1)
        return Operation(name, (read.tensor,), (write.tensor,)), write

    def sum(self, name: str, first: Image, second: Image) -> tuple[Operation, Image]:
        """Add two images of one shape."""
        write = self.image(name, first.channels, first.edge)
        return Operation(name, (first.tensor, second.tensor), (write.tensor,), passes_gradient=True), write

    def concatenate(self, name: str, first: Image, second: Image) -> tuple[Operation, Image]:
        """Join the channels of two images; the backward copies the two parts."""
        write = self.image(name, first.channels + second.channels, first.edge)
        return Operation(name, (first.tensor, second.tensor), (write.tensor,)), write
