"""Actions of a time-stepping code: advance, checkpoint, restore, discard, backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from remat.schedule.operations import Entry, Layout, Operation


@dataclass(frozen=True, slots=True)
class Advance:
    """Advance the live state `first` to the state `last`; the live state is consumed."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"advance {self.first} -> {self.last}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Store the live state in a storage level; None is the single memory of an instance without levels."""

    state: int
    level: str | None = None

    def __str__(self) -> str:
        return f"checkpoint x{self.state}" + (f" to {self.level}" if self.level else "")


@dataclass(frozen=True, slots=True)
class Restore:
    """Restore a stored state: it becomes live and stays stored."""

    state: int
    level: str | None = None

    def __str__(self) -> str:
        return f"restore x{self.state}" + (f" from {self.level}" if self.level else "")


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove a stored state; right after its `Restore` the live copy stays."""

    state: int
    level: str | None = None

    def __str__(self) -> str:
        return f"discard x{self.state}" + (f" from {self.level}" if self.level else "")


@dataclass(frozen=True, slots=True)
class Backward:
    """Reverse a step from the live state `step` and the adjoint after it; `last` is the step reversed first."""

    step: int
    last: bool = False

    def __str__(self) -> str:
        return "loss" if self.last else f"backward {self.step + 1}"


Action = Advance | Checkpoint | Restore | Discard | Backward


def actions_of(operations: Iterable[Entry], layout: Layout, memories: Sequence[str]) -> Iterator[Action]:
    """Turn operations into actions, one by one.

    Parameters
    ----------
    operations : iterable of (operation, first, end or level)
    layout : Layout
    memories : sequence of str
        Names of the machine's memories.
    """
    levels: Sequence[str | None] = [None] if layout.shared else memories
    for operation, first, second in operations:
        if operation == Operation.ADVANCE:
            yield Advance(first, second)
        elif operation == Operation.BACK:
            yield Backward(first, first == layout.last)
        elif operation == Operation.WRITE:
            yield Checkpoint(first, levels[second])
        elif operation == Operation.DISCARD:
            yield Discard(first, levels[second])
        else:
            yield Restore(first, levels[second])
            if operation == Operation.READ_LAST:
                yield Discard(first, levels[second])
