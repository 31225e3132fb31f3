"""Input and output of algorithms of the family `layout`: buffers, and their addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from remat.errors import OptionError
from remat.graph.taskgraph import BoolArray, IntArray
from remat.plugin.proposal import Termination
from remat.units import LARGEST_SIZE

THIS_SCHEDULE = "this schedule"
"""The scope of proofs about layouts of fixed lifetimes: another schedule may need less."""

FREE = -1
"""The fixed offset of a buffer that may have any offset."""


@dataclass(frozen=True)
class Buffers:
    """Buffers with known lifetimes in one memory that need addresses: a dynamic storage allocation problem.

    Two buffers whose lifetimes intersect must not overlap in address. Times are half-open: a buffer that ends when
    another one starts may share its bytes.

    Attributes
    ----------
    start, end : (buffers,) int64
        Times, or their ranks (`Buffers.of` takes any numbers). Each start is less than its end.
    size : (buffers,) int64
        Bytes, at least 1.
    alignment : int
        A power of two that divides every offset.
    capacity : int or None
        Bytes of the arena; None: minimise it.
    fixed : (buffers,) int64
        The offset that a buffer must have; `FREE` for any offset.
    reserved : tuple of (int, int)
        Half-open ranges of addresses that no buffer may use; rounded outwards to the alignment.
    group : (buffers,) int64
        Buffers of one group keep their distances: the offset of each is the group's plus its `shift`. By default each
        buffer is a separate group. Buffers of one group with intersecting lifetimes must not overlap.
    shift : (buffers,) int64
        Never negative, and 0 for one buffer of each group.
    names : sequence of str
        Names of the buffers in messages; empty: their numbers.

    Raises
    ------
    OptionError
        For requirements that no layout can satisfy whatever the capacity, and for invalid arguments.
    """

    start: IntArray
    end: IntArray
    size: IntArray
    alignment: int = 1
    capacity: int | None = None
    fixed: IntArray | None = None
    reserved: tuple[tuple[int, int], ...] = ()
    group: IntArray | None = None
    shift: IntArray | None = None
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise OptionError(f"{self.alignment} is not a power of two", argument="align")
        if self.capacity is not None and not 0 <= self.capacity <= LARGEST_SIZE:
            raise OptionError(f"{self.capacity} bytes are not a capacity", argument="capacity")
        for low, high in self.reserved:
            if not 0 <= low < high <= LARGEST_SIZE:
                raise OptionError(f"{low}-{high} is not a range of addresses", argument="reserved")
        self._check_rows()
        if self.fixed is not None:
            self._check_fixed(self.fixed)

    def __len__(self) -> int:
        return len(self.size)

    @classmethod
    def of(cls, start: Any, end: Any, size: Any, **more: Any) -> Buffers:
        """Return buffers with any comparable numbers as times; the ranks of the times replace them."""
        _, rank = np.unique(np.concatenate((np.asarray(start), np.asarray(end))), return_inverse=True)
        rank = rank.astype(np.int64).ravel()
        count = len(rank) // 2
        return cls(rank[:count], rank[count:], np.asarray(size, dtype=np.int64), **more)

    def with_capacity(self, capacity: int | None) -> Buffers:
        """Return the same buffers with another arena capacity."""
        return replace(self, capacity=capacity)

    def name(self, buffer: int) -> str:
        """Return the name of a buffer in messages."""
        return self.names[buffer] if self.names else f"buffer {buffer}"

    @property
    def is_plain(self) -> bool:
        """Whether each buffer is a separate group."""
        return self.group is None

    @cached_property
    def rounded(self) -> IntArray:
        """The sizes rounded up to the alignment: the address ranges that buffers block for those above them."""
        mask = self.alignment - 1
        return (self.size + mask) & ~mask

    @cached_property
    def blocked(self) -> tuple[tuple[int, int], ...]:
        """The reserved ranges by ascending address, rounded outwards; adjacent ranges are merged."""
        mask = self.alignment - 1
        found: list[tuple[int, int]] = []
        for low, high in sorted((low & ~mask, (high + mask) & ~mask) for low, high in self.reserved):
            if found and low <= found[-1][1]:
                found[-1] = found[-1][0], max(high, found[-1][1])
            else:
                found.append((low, high))
        return tuple(found)

    @cached_property
    def is_fixed(self) -> BoolArray:
        """The buffers with fixed offsets."""
        return np.zeros(len(self), dtype=bool) if self.fixed is None else self.fixed != FREE

    def _check_rows(self) -> None:
        for name, bad in (("starts when it ends, or later", self.start >= self.end), ("has no bytes", self.size < 1)):
            if bad.any():
                raise OptionError(f"{self.name(int(np.flatnonzero(bad)[0]))} {name}", argument="buffers")
        if self._highest() > LARGEST_SIZE:
            what = "sizes" if not self.reserved and self.fixed is None else "sizes and the addresses"
            raise OptionError(f"the {what} add up to more than 2^62 bytes", argument="buffers")

    def _highest(self) -> int:
        """Return an address below which every buffer finds a place above all fixed and reserved addresses."""
        free = max((high for _, high in self.reserved), default=0)
        if self.fixed is not None:
            ends = zip(self.fixed.tolist(), self.size.tolist(), strict=True)
            free = max(free, max((low + size for low, size in ends if low != FREE), default=0))
        unit = self.alignment
        if float(self.size.astype(np.float64).sum()) + float(len(self)) * unit < LARGEST_SIZE / 2:
            rounded = int(self.rounded.sum())
        else:  # sums of int64 might overflow
            rounded = sum(-(-size // unit) * unit for size in self.size.tolist())
        return -(-free // unit) * unit + rounded

    def _check_fixed(self, fixed: IntArray) -> None:
        where = np.flatnonzero(self.is_fixed)
        for buffer in where.tolist():
            offset = int(fixed[buffer])
            if offset < 0 or offset % self.alignment:
                raise OptionError(
                    f"{self.name(buffer)} is fixed at {offset}, which is not a multiple of {self.alignment}",
                    argument="fixed",
                )
            for low, high in self.blocked:
                if offset < high and offset + self.size[buffer] > low:
                    raise OptionError(
                        f"{self.name(buffer)} is fixed at {offset}, in the reserved range {low}-{high}",
                        argument="fixed",
                    )
        order = where[np.argsort(fixed[where], kind="stable")]
        for place, one in enumerate(order.tolist()):
            for other in order[place + 1 :].tolist():
                if fixed[other] >= fixed[one] + self.size[one]:
                    break
                if self.start[one] < self.end[other] and self.start[other] < self.end[one]:
                    raise OptionError(
                        f"{self.name(one)} and {self.name(other)} are fixed at {fixed[one]} and {fixed[other]}, "
                        "where they overlap",
                        argument="fixed",
                    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutProposal:
    """The addresses that an algorithm proposes; the figures are claims, which the verifier checks.

    Attributes
    ----------
    offset : (buffers,) int64, or None
        None if no layout was found.
    bound : int
        Lower bound on the arena of every layout.
    infeasible_within : str or None
        The class whose layouts all exceed the capacity: `THIS_SCHEDULE`, or a smaller one.
    termination : Termination
    work : int
        Units of work that the search took; 0 for algorithms without a search.
    reserved : int or None
        For a simulated allocator: the largest number of bytes that it reserves at one time.
    notes : tuple of str
    """

    offset: IntArray | None = None
    bound: int = 0
    infeasible_within: str | None = None
    termination: Termination = Termination.COMPLETED
    work: int = 0
    reserved: int | None = None
    notes: tuple[str, ...] = ()


def arena_of(buffers: Buffers, offset: IntArray) -> int:
    """Return the end of the highest buffer."""
    return int((offset + buffers.size).max()) if len(buffers) else 0
