"""Convolutions, norms and pools as operations, the building blocks of networks for images."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        kernel: int | tuple[int, int],
        stride: int = 1,
        padding: int | None = None,
        bias: bool = False,
        groups: int = 1,
    ) -> tuple[Operation, Image]:
        """Convolve: ``2*B*K*E^2*C*k^2`` FLOP for C channels in, K out and an output of edge E.

        Padding defaults to half the kernel, separately for each direction. The backward saves the input. Each group
        reads its share of the input channels; a depthwise convolution has one group per channel.
        """
        high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
        around = high // 2 if padding is None else padding
        edge = (read.edge + 2 * around - high) // stride + 1
        write = self.image(name, channels, edge)
        products = channels * (read.channels // groups) * high * wide
        operation = Operation(
            name,
            (read.tensor,),
            (write.tensor,),
            (read.tensor,),
            flops=2 * self.batch * edge * edge * products,
            weights=self.element * (products + (channels if bias else 0)),
        )
        return operation, write

    def upsampling(
        self, name: str, read: Image, channels: int, *, kernel: int = 2, stride: int = 2, bias: bool = True
    ) -> tuple[Operation, Image]:
        """Transposed convolution: `stride` times the edge."""
        write = self.image(name, channels, stride * read.edge)
        products = kernel * kernel * channels * read.channels
        operation = Operation(
            name,
            (read.tensor,),
            (write.tensor,),
            (read.tensor,),
            flops=2 * self.batch * read.edge * read.edge * products,
            weights=self.element * (products + (channels if bias else 0)),
        )
        return operation, write

    def norm(self, name: str, *reads: Image, again: bool = False) -> tuple[Operation, Image]:
        """Batch norm; saves its input and the fp32 mean and deviation of each channel.

        It reads the channels of all inputs, which are stored side by side, and so do their
        gradients.
        """
        channels = sum(read.channels for read in reads)
        write = self.image(name, channels, reads[0].edge)
        tensors = tuple(read.tensor for read in reads)
        kept = Tensor(f"{name}.statistics", 2 * FLOAT32 * channels, differentiable=False)
        weights = 2 * self.element * channels
        operation = Operation(name, tensors, (write.tensor, kept), (*tensors, kept), weights=weights, again=again)
        return replace(operation, accumulates=len(reads) > 1), write

    def activated_norm(self, name: str, read: Image) -> tuple[Operation, Image]:
        """In-place activated batch norm; saves its output and each channel's deviation, and inverts the activation."""
        write = self.image(name, read.channels, read.edge)
        kept = Tensor(f"{name}.statistics", FLOAT32 * read.channels, differentiable=False)
        weights = 2 * self.element * read.channels
        saves = (write.tensor, kept)
        return Operation(name, (read.tensor,), saves, saves, weights=weights, in_place=True), write

    def relu(self, name: str, read: Image, *, again: bool = False) -> tuple[Operation, Image]:
        """In-place rectifier; saves its output."""
        write = self.image(name, read.channels, read.edge)
        return Operation(name, (read.tensor,), (write.tensor,), (write.tensor,), in_place=True, again=again), write

    def dropout(self, name: str, read: Image) -> tuple[Operation, Image]:
        """Dropout; saves a mask of one byte an entry."""
        write = self.image(name, read.channels, read.edge)
        mask = Tensor(f"{name}.mask", read.tensor.size // self.element, differentiable=False)
        return Operation(name, (read.tensor,), (write.tensor, mask), (mask,)), write

    def linear(self, name: str, read: Image, channels: int) -> tuple[Operation, Image]:
        """Fully connected layer with biases, of all entries of an image."""
        flat = Image(read.tensor, read.channels * read.edge**2, 1)
        return self.convolution(name, flat, channels, kernel=1, bias=True)

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

    def average_pool(
        self, name: str, read: Image, *, kernel: int, stride: int, padding: int = 0
    ) -> tuple[Operation, Image]:
        """Average pool; its backward needs nothing."""
        edge = (read.edge + 2 * padding - kernel) // stride + 1
        write = self.image(name, read.channels, edge)
        return Operation(name, (read.tensor,), (write.tensor,)), write

    def average(self, name: str, read: Image) -> tuple[Operation, Image]:
        """Mean over each channel; its backward needs nothing."""
        write = self.image(name, read.channels, 1)
        return Operation(name, (read.tensor,), (write.tensor,)), write

    def sum(self, name: str, first: Image, second: Image, *, in_place: bool = False) -> tuple[Operation, Image]:
        """Add two images of one shape; in place, the second one to the first."""
        write = self.image(name, first.channels, first.edge)
        reads = (first.tensor, second.tensor)
        return Operation(name, reads, (write.tensor,), in_place=in_place, passes_gradient=True), write

    def concatenate(self, name: str, *reads: Image, again: bool = False) -> tuple[Operation, Image]:
        """Join the channels of several images; the backward copies the parts."""
        write = self.image(name, sum(read.channels for read in reads), reads[0].edge)
        return Operation(name, tuple(read.tensor for read in reads), (write.tensor,), again=again), write
