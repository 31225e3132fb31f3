"""What a rule gives, and how it says it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from remat.plugin import OptionError, Pass, Phase

__all__ = ["Lists", "Pass", "Phase", "check", "frozen", "in_turns", "straight", "whole"]


@dataclass(frozen=True, slots=True)
class Lists:
    """Stages on devices, and what each device runs, in order.

    Attributes
    ----------
    place : tuple of int
        The device of each stage.
    part : tuple of int
        The chunk of the model that each stage holds, counted from 0 in the order of the layers. Each micro-batch passes
        one stage of every part; stages of one direction are numbered in the order in which it passes them.
    lists : tuple of tuple of Pass
        One list a device.
    """

    place: tuple[int, ...]
    part: tuple[int, ...]
    lists: tuple[tuple[Pass, ...], ...]

    @property
    def parts(self) -> int:
        """Into how many parts the layers are to be cut."""
        return max(self.part) + 1


def straight(devices: int, lists: Iterable[Iterable[Pass]]) -> Lists:
    """Return lists of one stage a device, in the order of the devices."""
    return Lists(tuple(range(devices)), tuple(range(devices)), frozen(lists))


def frozen(lists: Iterable[Iterable[Pass]]) -> tuple[tuple[Pass, ...], ...]:
    """Return the lists as they are kept."""
    return tuple(tuple(operations) for operations in lists)


def whole(split: bool) -> Phase:
    """Return the phase of a whole backward: BW where layers give the time of its second half apart."""
    return Phase.BW if split else Phase.B


def in_turns(forwards: list[Pass], backwards: list[Pass], warm_up: int) -> Iterator[Pass]:
    """Yield `warm_up` forwards, then a forward and a backward in turns while there are forwards, then the backwards."""
    yield from forwards[:warm_up]
    rest = forwards[warm_up:]
    for forward, backward in zip(rest, backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(rest) :]


def check(devices: int, batches: int) -> None:
    """Refuse what no rule is for."""
    if devices < 1:
        raise OptionError(f"{devices} devices; a pipeline has at least one", argument="devices")
    if batches < 1:
        raise OptionError(f"{batches} micro-batches; a pipeline runs at least one", argument="batches")
