"""Memory of an optimizer: its states, and the temporaries of its step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil, prod
from pathlib import Path

from remat.documents import read_document
from remat.errors import InstanceError, OptionError
from remat.generate.optimizers import NAMES, Named, is_name, read_name

SCHEMA = "remat.optimizer/1"
BLOCK = 256
"""Numbers of an 8-bit state that share a scale in fp32 (bitsandbytes)."""
LEAST_8_BIT = 4096
"""Parameters with fewer elements have states in fp32 (bitsandbytes)."""
CODES = 2 * 256 * 4
"""Bytes of the two tables of 8-bit codes, one for all parameters."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained parameter: its bytes and its shape."""

    size: int
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of its elements."""
        return prod(self.shape)

    @property
    def factors(self) -> int:
        """Bytes of the row and column factors of a matrix, or of a copy of a vector."""
        if len(self.shape) < 2 or not self.elements:
            return self.size
        return self.size // self.shape[-1] + self.size // self.shape[-2]

    @property
    def eight_bit(self) -> int:
        """Bytes of two 8-bit states with their scales."""
        if self.elements < LEAST_8_BIT:
            return 8 * self.elements
        return 2 * self.elements + 8 * ceil(self.elements / BLOCK)


@dataclass(frozen=True)
class Optimizer:
    """Memory of an optimizer: its states, and the temporaries of its step.

    Attributes
    ----------
    states : float
        Tensors of a parameter's own size and type.
    bytes_per_element : float
        Bytes per element of a parameter, for every type: 4 for a copy in full precision, 2 for two states of eight
        bits.
    fixed : int
        Additional bytes, independent of the parameters.
    step_copies : float
        Temporary copies of all trained parameters in a step.
    step_tensors : float
        Temporary copies of the largest trained parameter in a step.
    named : Named or None
        A known optimizer; the other figures are 0 then.
    """

    states: float = 0
    bytes_per_element: float = 0
    fixed: int = 0
    step_copies: float = 0
    step_tensors: float = 0
    named: Named | None = None

    def state_bytes(self, trained: Sequence[Trained]) -> int:
        """Bytes of the states, rounded up."""
        if self.named is not None:
            family = self.named.known
            if family.factored:
                return sum(tensor.factors for tensor in trained)
            if family.eight_bit:
                return sum(tensor.eight_bit for tensor in trained) + (CODES if trained else 0)
        states = self.states if self.named is None else self.named.known.states
        size = sum(tensor.size for tensor in trained)
        elements = sum(tensor.elements for tensor in trained)
        return ceil(states * size + self.bytes_per_element * elements) + self.fixed

    def step_bytes(self, trained: Sequence[Trained], device: str) -> int:
        """Bytes of a step's temporaries on a type of device; `trained` is in the optimizer's order."""
        sizes = [tensor.size for tensor in trained]
        if self.named is not None:
            return self.named.temporaries(device).bytes(sizes, [tensor.elements for tensor in trained])
        return ceil(self.step_copies * sum(sizes) + self.step_tensors * max(sizes, default=0))

    def others(self, trained: Sequence[Trained], device: str) -> Iterator[tuple[str, int]]:
        """Yield the other implementations of a known optimizer, with the bytes of their temporaries."""
        if self.named is not None:
            for implementation in self.named.known.steps:
                if implementation != self.named.on(device):
                    other = replace(self, named=replace(self.named, implementation=implementation))
                    yield other.called(device), other.step_bytes(trained, device)

    def called(self, device: str) -> str:
        """Return the name with the implementation of the step on a type of device; empty for a file's."""
        return "" if self.named is None else f"{self.named.family}-{self.named.on(device)}"


def read_optimizer(optimizer: str | None) -> Optimizer:
    """Read an optimizer: a known name, or a file of schema `remat.optimizer/1` (``.gz`` too).

    Raises
    ------
    OptionError
        For a name that is neither known nor a file.
    InstanceError
        For a file of another form.
    """
    if optimizer is None:
        return Optimizer()
    if is_name(optimizer):
        return Optimizer(named=read_name(optimizer))
    if not Path(optimizer).is_file():
        raise OptionError(f"there is no {optimizer!r}; known are {', '.join(NAMES)}, and files", argument="optimizer")
    document = read_document(optimizer)
    if document.get("schema") != SCHEMA:
        found = document.get("schema")
        raise InstanceError(f"{optimizer}: expected an optimizer ({SCHEMA}), not {found!r}", "$.schema")
    known = [name for name in Optimizer.__dataclass_fields__ if name != "named"]
    for name, value in document.items():
        if name not in ("schema", *known):
            raise InstanceError(f"{optimizer}: unknown; known are {', '.join(known)}", f"$.{name}")
        if name in known and (isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or value < 0):
            raise InstanceError(f"{optimizer}: expected a number that is not negative, not {value!r}", f"$.{name}")
    states, element, copies, tensors = (float(document.get(name, 0)) for name in known if name != "fixed")
    return Optimizer(states, element, int(document.get("fixed", 0)), copies, tensors)
