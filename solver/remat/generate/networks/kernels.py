"""Lists of kernels, from which task graphs are built kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from remat.generate.document import Document
from remat.generate.networks.operations import Device


@dataclass(frozen=True, slots=True)
class Kernel:
    """A task.

    Parameters
    ----------
    name : str
    time : float
        Seconds.
    reads, writes : tuple of str
        Values; one that is written alone has the kernel's name.
    phase : {"forward", "backward"}
    weight : str
        The parameter that it reads, or nothing.
    gradient : str
        The gradient of a parameter that it makes, or nothing. Such a kernel writes nothing else.
    in_place : bool
    """

    name: str
    time: float
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    phase: str
    weight: str = ""
    gradient: str = ""
    in_place: bool = False

    @property
    def writes_its_own(self) -> bool:
        """Whether its only output is a value with its name: the short form of task graphs."""
        return self.writes == (self.name,)


class Kernels:
    """Kernels, values and parameters of a network, or of a part of it that is repeated.

    Attributes
    ----------
    kernels : list of Kernel
        In order.
    sizes : dict
        Bytes of each value, but not of gradients of parameters.
    parameters : dict
        Number of parameters by name.
    gradients : dict
        The parameters' names and numbers of entries by the names of their gradients: a matrix and its bias have two.
    """

    def __init__(self, device: Device, element: int) -> None:
        self.device, self.element = device, element
        self.kernels: list[Kernel] = []
        self.sizes: dict[str, int] = {}
        self.parameters: dict[str, int] = {}
        self.gradients: dict[str, tuple[str, int]] = {}
        self.phase = "forward"

    def add(
        self,
        name: str,
        reads: Sequence[str],
        writes: Mapping[str, int],
        *,
        flops: int = 0,
        weight: str = "",
        gradient: str = "",
        in_place: bool = False,
        traffic: int | None = None,
    ) -> None:
        """Append a kernel: the longer of its arithmetic and its traffic, by default all that it reads and writes."""
        self.sizes.update(writes)
        moved = sum(self.sizes[value] for value in reads) + sum(writes.values())
        moved += self.element * self.parameters[weight] if weight else 0
        moved += self.gradient_size(gradient) if gradient else 0
        time = self.device.time(flops, moved if traffic is None else traffic)
        self.kernels.append(Kernel(name, time, tuple(reads), tuple(writes), self.phase, weight, gradient, in_place))

    def sum(self, name: str, reads: Sequence[str], write: str, *, in_place: bool = False) -> None:
        """Append a kernel that adds values of one size."""
        self.add(name, reads, {write: self.sizes[reads[0]]}, in_place=in_place)

    def parameter(self, name: str, count: int, bias: int = 0) -> None:
        """Declare a parameter; its bias has a separate gradient."""
        self.parameters[name] = count + bias
        self.gradients[name] = (name, count)
        if bias:
            self.gradients[f"{name}.bias"] = (name, bias)

    def gradient_size(self, gradient: str) -> int:
        """Return the bytes of a gradient."""
        return self.element * self.gradients[gradient][1]

    def rename(self) -> None:
        """Name the only output of a kernel like the kernel, which gives the short form of task graphs."""
        alone = {kernel.writes[0]: kernel.name for kernel in self.kernels if len(kernel.writes) == 1}
        self.kernels = [
            replace(
                kernel,
                reads=tuple(alone.get(value, value) for value in kernel.reads),
                writes=tuple(alone.get(value, value) for value in kernel.writes),
            )
            for kernel in self.kernels
        ]
        self.sizes = {alone.get(value, value): size for value, size in self.sizes.items()}

    def makers(self) -> dict[str, list[str]]:
        """Return the names of the kernels that make each gradient, in order."""
        found: dict[str, list[str]] = {}
        for kernel in self.kernels:
            if kernel.gradient:
                found.setdefault(kernel.gradient, []).append(kernel.name)
        return found

    def listed(self) -> dict[str, int]:
        """Return the values that need a separate entry, with their sizes."""
        own = {kernel.name for kernel in self.kernels if kernel.writes_its_own}
        return {name: size for name, size in self.sizes.items() if name not in own}

    def task(self, kernel: Kernel, prefix: str, held: dict[str, str], *, added: bool, placed: bool = False) -> Document:
        """Return the task of a kernel.

        Parameters
        ----------
        kernel : Kernel
        prefix : str
            In front of the names of its values.
        held : dict
            Where each gradient is added up so far; kept up to date.
        added : bool
            Whether gradients are added up.
        placed : bool
            Whether parameters are values, ``W.`` and their names.
        """
        name = prefix + kernel.name
        reads = [prefix + value for value in kernel.reads]
        task: Document = {"id": name, "time": kernel.time, "reads": reads}
        in_place = kernel.in_place
        if kernel.weight and placed:
            reads.append(f"W.{kernel.weight}")
        if kernel.gradient:
            task["size"] = self.gradient_size(kernel.gradient)
            if kernel.gradient in held:
                reads.append(held[kernel.gradient])
                in_place = True
            if added:
                held[kernel.gradient] = name
        elif kernel.writes_its_own:
            task["size"] = self.sizes[kernel.name]
        else:
            task["writes"] = [prefix + value for value in kernel.writes]
        if in_place:
            task["in_place"] = True
        task["phase"] = kernel.phase
        return task
