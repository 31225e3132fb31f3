"""A lower bound on the time of a step over all schedules that includes the recomputation forced by memory.

For one micro-batch, let R(l) be the time of all layers after l, forward and backward. At least this time passes between
the forward of l and its backward, on any devices. Let Q be the layers whose forwards run more than once. The saved
bytes of any other layer are held for R(l). Of consecutive layers in Q, the first one's input, or its saved bytes, are
held for as long: no layer can be recomputed without one of them. With work w, and memory x time c that every schedule
needs, for any price a >= 0 of bytes times time,

    T (D + a M) >= n (w + a c + min over Q of (sum of f(l), l in Q) + a (sum of s(l) R(l), l not in Q)
                                             + a (sum of min(s(l), x(l-1)) R(l), l first ones of Q))

for n micro-batches on D devices with M bytes without parameters: work on one side, Little's law on the other. The
minimum is a shortest path over layers with two states, O(layers). Golden-section search finds the best price.

If each layer stays on one device, as in all plans that are orders, devices wait at first: of consecutive layers, k pass
before the k-th device can begin, and as many at the end if backwards are whole. This gives a separate bound for these
schedules. There, each layer also runs on one device as a whole. Of 100 equal layers on 64 devices, 36 devices run two,
and all of these except the first wait before (`remat_algorithms.kit.pigeonhole_bound`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from remat.plugin import Layer, Number, PipelineInstance, Problem
from remat_algorithms.kit.pigeonhole_bound import Bins, fullest

SAFE = 1 - 1e-9
"""Share of a floating-point bound that is certain."""


class Row(NamedTuple):
    """A layer: times of forward, backward and W; saved bytes, those of them for W, and bytes of its input."""

    forward: float
    backward: float
    weight: float
    saved: int
    later: int
    input: int


class Limits(NamedTuple):
    """The data of the bounds.

    Attributes
    ----------
    rows : tuple of Row
        Layers, with the minimum times over all types.
    batches, devices : int
    memory : int or None
        Bytes without parameters.
    waits : tuple of float
        Wait of each device, the first one first, if each layer stays on one device; empty if layers may move.
    kinds : tuple of (int, tuple of float)
        For each type: its number of devices, and the time of each layer for a micro-batch; infinite if it cannot run.
    stored : bool
        Whether each layer has parameters, which lie on a device.
    exact : bool
        Whether all times of layers are integers, so that their sums are exact.
    """

    rows: tuple[Row, ...]
    batches: int
    devices: int
    memory: int | None
    waits: tuple[float, ...]
    kinds: tuple[tuple[int, tuple[float, ...]], ...]
    stored: bool = True
    exact: bool = False

    @property
    def idle(self) -> float:
        """Total wait of all devices."""
        return sum(self.waits)


def limits_of(problem: Problem) -> Limits | None:
    """Return the data of the bounds; None if layers are no chain, or micro-batches are divided."""
    instance, machine = problem.instance, problem.machine
    assert isinstance(instance, PipelineInstance)
    apart = instance.has_skips or instance.tokens is not None or instance.is_shareable or instance.is_stream
    paired = any(layer.paired_time is not None for layer in instance.layers)
    if apart or paired or instance.is_open or any(processor.speed != 1 for processor in machine.processors):
        return None
    types = list(dict.fromkeys(instance.device_types))
    layers = instance.each_layer()

    def least(index: int, phase: str) -> float:
        times = [layers[index].time_on(phase, name) for name in types]
        return float(min(time for time in times if time is not None))

    rows = tuple(
        Row(
            least(index, "forward_time"),
            least(index, "backward_time"),
            least(index, "weight_time") if layer.is_split else 0.0,
            layer.saved_size,
            min(layer.saved_size, layer.weight_saved_size) if layer.is_split else 0,
            layers[index - 1].output_size if index else 0,
        )
        for index, layer in enumerate(layers)
    )
    capacities = [machine.memories[processor.memory].capacity for processor in machine.processors]
    static = sum(sum(layer.of_parameters) for layer in layers)
    # Values offloaded to a host need no recomputation.
    unlimited = None in capacities or instance.cluster.host is not None
    memory = None if unlimited else max(0, sum(capacity or 0 for capacity in capacities) - static)
    waits: tuple[float, ...] = ()
    if instance.copies == 1:
        passing = [row.forward + (0.0 if instance.is_split else row.backward) for row in rows]
        waits = tuple(sum(passing[:device]) for device in range(len(machine.processors)))
    kinds = tuple(
        (list(instance.device_types).count(name), tuple(_work_on(layer, name) for layer in layers)) for name in types
    )
    stored = all(layer.parameter_size for layer in instance.whole_layers())
    return Limits(
        rows, instance.micro_batches, len(machine.processors), memory, waits, kinds, stored, problem.graph.exact_times
    )


def _work_on(layer: Layer, name: str) -> float:
    """Return the time of a layer for a micro-batch on a type of device; infinite if it cannot run there."""
    phases = ("forward_time", "backward_time", *(("weight_time",) if layer.is_split else ()))
    times = [layer.time_on(phase, name) for phase in phases]
    return math.inf if None in times else float(sum(time or 0 for time in times))


def work_bound(limits: Limits) -> float:
    """Return the bound for layers that stay on their devices: all work, divided among devices, plus their waits."""
    work = sum(row.forward + row.backward + row.weight for row in limits.rows)
    return SAFE * (limits.idle + limits.batches * work) / limits.devices


def whole_bound(limits: Limits) -> float:
    """Return the bound for layers that each stay on one device: counted whole layers, plus the devices' waits."""
    if not limits.waits:
        return 0.0
    batches = limits.batches
    work = [batches * (row.forward + row.backward + row.weight) for row in limits.rows]
    found = fullest([Bins(limits.waits, work)])
    if len(limits.kinds) > 1:  # the assignment of waits to types is unknown
        found = max(
            found, fullest([Bins([0.0] * count, [batches * time for time in own]) for count, own in limits.kinds])
        )
    return found if limits.exact and found < 2**53 else SAFE * found


def forced_bound(limits: Limits) -> tuple[float, float]:
    """Return the bound with forced recomputation, and its price of bytes times time; 0: memory is ample."""
    total = sum(row.forward + row.backward + row.weight for row in limits.rows)
    if not limits.memory:
        return SAFE * limits.batches * total / limits.devices, 0.0
    memory = limits.memory

    def value(price: float) -> float:
        least = total + _least(limits.rows, price)
        return limits.batches * least / (limits.devices + price * memory)

    scale = limits.devices / memory
    price = _golden(lambda share: value(scale * math.exp(share)), -12.0, 8.0)
    found = value(scale * math.exp(price))
    plain = value(0.0)
    return (SAFE * found, scale * math.exp(price)) if found > plain else (SAFE * plain, 0.0)


def _least(rows: Sequence[Row], price: float) -> float:
    """Return the minimum of recomputation plus bytes times time at a price, for a micro-batch."""
    behind = 0.0
    ways: list[float] = []
    for row in reversed(rows):
        ways.append(behind)
        behind += row.forward + row.backward
    ways.reverse()
    always = 0.0
    once, again = 0.0, math.inf
    for row, way in zip(rows, ways, strict=True):
        always += row.saved * (row.forward + row.backward) + row.later * row.weight
        keep = min(once, again) + price * row.saved * way
        first = once + row.forward + price * min(row.saved, row.input) * way
        once, again = keep, min(first, again + row.forward)
    return price * always + min(once, again)


def _golden(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the maximizer of a unimodal function."""
    ratio = (math.sqrt(5) - 1) / 2
    one, other = high - ratio * (high - low), low + ratio * (high - low)
    at_one, at_other = function(one), function(other)
    for _ in range(80):
        if at_one < at_other:
            low, one, at_one = one, other, at_other
            other = low + ratio * (high - low)
            at_other = function(other)
        else:
            high, other, at_other = other, one, at_one
            one = high - ratio * (high - low)
            at_one = function(one)
    return (low + high) / 2


def stated(problem: Problem, value: float) -> Number:
    """Return a bound in the problem's number type: rounded up if all times are integers."""
    links = problem.machine.links
    whole = problem.graph.exact_times and all(
        type(link.latency) is int and type(link.delay) is int and link.bandwidth in (None, 1) for link in links
    )
    return math.ceil(value) if whole else value
