"""Periods of pipelines by trying everything: layers on devices, and every place in the period of all that is done.

Written from the definitions alone. A micro-batch passes through all layers forward and back; the next one follows a
period later. Operations on one device, and transfers on one link, never overlap. A layer holds an activation from the
start of its forward to the end of its backward. The oracle counts the bytes of all layers of a device at every instant,
micro-batch by micro-batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Stream(NamedTuple):
    """Layers with positive integer times on equal devices; a transfer between devices takes `hop`.

    `every` is `update_every`; `room` is the memory of each device in bytes.
    """

    forward: Sequence[int]
    backward: Sequence[int]
    activation: Sequence[int]
    parameters: Sequence[int]
    mode: str
    every: int
    devices: int
    room: int
    hop: int = 0


def least_period(stream: Stream, *, contiguous: bool = False) -> int | None:
    """Return the least period that any pattern has; None if none has.

    A micro-batch holds the activations of all layers while it turns; so who cannot hold them once never can.
    """
    homes = [
        home
        for home in _homes(stream)
        if (not contiguous or _is_contiguous(home))
        and all(
            sum(
                size + more
                for size, more, at in zip(stream.activation, stream.parameters, home, strict=True)
                if at == device
            )
            <= stream.room
            for device in set(home)
        )
    ]
    work = sum(stream.forward) + sum(stream.backward)
    longest = work + 2 * stream.hop * len(stream.forward) if homes else 0
    periods = range(-(-work // stream.devices), longest + 1)
    return next((period for period in periods if any(_has(stream, home, period) for home in homes)), None)


def _homes(stream: Stream) -> Iterator[tuple[int, ...]]:
    """Yield the assignments of layers to devices; equal devices are numbered by first use."""
    for home in itertools.product(range(stream.devices), repeat=len(stream.forward)):
        if all(device <= max(home[:layer], default=-1) + 1 for layer, device in enumerate(home)):
            yield home


def _is_contiguous(home: Sequence[int]) -> bool:
    return len({device for device, _ in itertools.groupby(home)}) == len(list(itertools.groupby(home)))


def _has(stream: Stream, home: Sequence[int], period: int) -> bool:
    way = list(_way(stream, home))

    def fit(number: int, time: int, busy: dict[object, set[int]], starts: list[int]) -> bool:
        if number == len(way):
            return _fits(stream, home, period, starts)
        resource, took = way[number]
        taken = busy.setdefault(resource, set())
        for start in range(time, time + (period if number else 1)):
            own = {(start + k) % period for k in range(took)}
            if took <= period and not own & taken:
                taken |= own
                starts.append(start)
                if fit(number + 1, start + took, busy, starts):
                    return True
                starts.pop()
                taken -= own
        return False

    return fit(0, 0, {}, [])


def _way(stream: Stream, home: Sequence[int]) -> Iterator[tuple[object, int]]:
    """Yield what is done for a micro-batch: on what, and for how long."""
    layers = range(len(home))
    for layer in layers:
        if layer and stream.hop and home[layer] != home[layer - 1]:
            yield (home[layer - 1], home[layer]), stream.hop
        yield home[layer], stream.forward[layer]
    for layer in reversed(layers):
        if layer + 1 < len(home) and stream.hop and home[layer] != home[layer + 1]:
            yield (home[layer + 1], home[layer]), stream.hop
        yield home[layer], stream.backward[layer]


def _fits(stream: Stream, home: Sequence[int], period: int, starts: Sequence[int]) -> bool:
    count = len(home)
    on_devices = [k for k, (resource, _) in enumerate(_way(stream, home)) if isinstance(resource, int)]
    begin = [starts[k] for k in on_devices[:count]]
    end = [starts[k] + took for k, took in zip(on_devices[: count - 1 : -1], stream.backward, strict=True)]
    late = max(end) // period + 1
    in_flight = [
        [
            sum(begin[k] + m * period <= late * period + x < end[k] + m * period for m in range(2 * late + 2))
            for k in range(count)
        ]
        for x in range(period)
    ]
    most = [max(row[k] for row in in_flight) for k in range(count)]
    if stream.mode == "double" and max(most) > stream.every:
        return False
    versions = [{"stash": g, "double": min(2, g), "single": 1, "predicted": min(2, g)}[stream.mode] for g in most]
    for device in range(stream.devices):
        own = [k for k in range(count) if home[k] == device]
        fixed = sum(versions[k] * stream.parameters[k] for k in own)
        if any(fixed + sum(row[k] * stream.activation[k] for k in own) > stream.room for row in in_flight):
            return False
    return True


def least_star(stream: Stream, most: int) -> int | None:
    """Return the least period of 1F1B* over all cuts into at most a stage a device, by its groups; no hops."""
    count = len(stream.forward)
    for period in range(1, most + 1):
        for stages in range(1, min(stream.devices, count) + 1):
            for inner in itertools.combinations(range(1, count), stages - 1):
                if _is_grouped(stream, (0, *inner, count), period):
                    return period
    return None


def _is_grouped(stream: Stream, cuts: Sequence[int], period: int) -> bool:
    """Whether stages fit, from the last one: a group begins where its work would exceed the period."""
    group, load = 1, 0
    for first, end in reversed(list(itertools.pairwise(cuts))):
        work = sum(stream.forward[first:end]) + sum(stream.backward[first:end])
        group, load = (group, load + work) if load + work <= period else (group + 1, work)
        versions = {"stash": group, "double": min(2, group), "single": 1, "predicted": min(2, group)}[stream.mode]
        size = versions * sum(stream.parameters[first:end]) + group * sum(stream.activation[first:end])
        if work > period or size > stream.room or (stream.mode == "double" and group > stream.every):
            return False
    return True
