"""Result type of the rules, and helpers to build it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from remat.plugin import OptionError, Pass, Phase

__all__ = ["Lists", "Pass", "Phase", "check", "frozen", "in_turns", "straight", "whole"]


@dataclass(frozen=True, slots=True)
class Lists:
    """Stages on devices, and the ordered operations of each device.

    Attributes
    ----------
    place : tuple of int
        Device of each stage.
    part : tuple of int
        Chunk of the model that each stage holds, counted from 0 in the order of the layers. Each micro-batch passes one
        stage of every part. Stages of one direction are numbered in the order in which it passes them.
    lists : tuple of tuple of Pass
        One list per device.
    """

    place: tuple[int, ...]
    part: tuple[int, ...]
    lists: tuple[tuple[Pass, ...], ...]

    @property
    def parts(self) -> int:
        """Number of parts into which the layers are cut."""
        return max(self.part) + 1


def straight(devices: int, lists: Iterable[Iterable[Pass]]) -> Lists:
    """Return lists of one stage per device, in the order of the devices."""
    return Lists(tuple(range(devices)), tuple(range(devices)), frozen(lists))


def frozen(lists: Iterable[Iterable[Pass]]) -> tuple[tuple[Pass, ...], ...]:
    """Return the lists as tuples."""
    return tuple(tuple(operations) for operations in lists)


def whole(split: bool) -> Phase:
    """Return the phase of a whole backward: BW if layers give a separate time for its second half."""
    return Phase.BW if split else Phase.B


def in_turns(forwards: list[Pass], backwards: list[Pass], warm_up: int) -> Iterator[Pass]:
    """Yield `warm_up` forwards, then alternate forwards and backwards, then yield the remaining backwards."""
    yield from forwards[:warm_up]
    rest = forwards[warm_up:]
    for forward, backward in zip(rest, backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(rest) :]


def check(devices: int, batches: int) -> None:
    """Raise an error for numbers that no rule supports."""
    if devices < 1:
        raise OptionError(f"{devices} devices; a pipeline has at least one", argument="devices")
    if batches < 1:
        raise OptionError(f"{batches} micro-batches; a pipeline runs at least one", argument="batches")
