"""Blocks of layers that any device may run: their times and bytes there, and their patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from remat.plugin import Number, Pattern, PipelineInstance, Problem, Stage
from remat_algorithms.parallel.pipeline.device_links import are_linked
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Hop, Times
from remat_algorithms.parallel.pipeline.periodic_pipelines import versions_of
from remat_algorithms.parallel.pipeline.stages import excess_of, held_bytes, steady_peaks
from remat_algorithms.parallel.pipeline.star_patterns import hop_between, pattern_of


@dataclass(frozen=True)
class Blocks:
    """Consecutive parts of the layers of a stream.

    Attributes
    ----------
    problem : Problem
    instance : PipelineInstance
    parts : tuple of (int, int)
        First layer of each part, and the layer after its last.
    """

    problem: Problem
    instance: PipelineInstance
    parts: tuple[tuple[int, int], ...]

    @cached_property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.problem.machine.processors)

    @cached_property
    def capacity(self) -> tuple[int | None, ...]:
        """Bytes of each device; None means unlimited."""
        machine = self.problem.machine
        return tuple(machine.memories[processor.memory].capacity for processor in machine.processors)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Type of each device."""
        return tuple(self.instance.device_types)

    @cached_property
    def times(self) -> dict[str, tuple[tuple[Number, Number, Number] | None, ...]]:
        """By device type, for each block: forward, backward, and weight-gradient times; None if it cannot run there."""
        layers, names = self.instance.each_layer(), ("forward_time", "backward_time", "weight_time")
        found: dict[str, tuple[tuple[Number, Number, Number] | None, ...]] = {}
        for kind in dict.fromkeys(self.types):
            rows: list[tuple[Number, Number, Number] | None] = []
            for first, end in self.parts:
                each = [[layer.time_on(name, kind) for layer in layers[first:end]] for name in names]
                known = [[time for time in row if time is not None] for row in each]
                rows.append((sum(known[0]), sum(known[1]), sum(known[2])) if known == each else None)
            found[kind] = tuple(rows)
        return found

    def time(self, block: int, device: int) -> tuple[Number, Number, Number] | None:
        """Return the times of a block on a device."""
        return self.times[self.types[device]][block]

    @cached_property
    def held(self) -> tuple[int, ...]:
        """Bytes that each block alone holds for a micro-batch (see `held_bytes`)."""
        layers = self.instance.each_layer()
        return tuple(held_bytes(self.instance, layers, range(first, end)) for first, end in self.parts)

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """Bytes of a block's input, which it does not hold separately if the block before it is on the same device."""
        layers = self.instance.each_layer()
        found = []
        for first, end in self.parts:
            apart = held_bytes(self.instance, layers, range(first, end))
            both = apart if not first else held_bytes(self.instance, layers, range(first - 1, end))
            before = 0 if not first else held_bytes(self.instance, layers, range(first - 1, first))
            found.append(apart + before - both if first else 0)
        return tuple(found)

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """Bytes of a block's parameters and everything stored with them."""
        layers = self.instance.each_layer()
        return tuple(sum(sum(layer.of_parameters) for layer in layers[first:end]) for first, end in self.parts)

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """Bytes of an additional version of a block's parameters."""
        layers = self.instance.each_layer()
        return tuple(sum(layer.parameter_size for layer in layers[first:end]) for first, end in self.parts)

    @cached_property
    def whole(self) -> bool:
        """Whether all times are integers, including those of transfers."""
        ways = [self.hop(block, *ends) for block in range(len(self.parts) - 1) for ends in self.pairs]
        each = [time for hop in ways if hop is not None for time in (hop.forward, hop.backward, *hop.later)]
        each += [time for rows in self.times.values() for row in rows if row is not None for time in row]
        return all(isinstance(time, int) for time in each)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """All pairs of different devices."""
        return tuple((one, two) for one in range(self.devices) for two in range(self.devices) if one != two)

    @cached_property
    def alike(self) -> bool:
        """Whether all devices are interchangeable."""
        ways = {tuple(self.hop(block, *ends) for block in range(len(self.parts) - 1)) for ends in self.pairs}
        return len(set(self.types)) == 1 and len(set(self.capacity)) == 1 and len(ways) <= 1

    @cached_property
    def least_period(self) -> Number:
        """Lower bound on the period: an equal share of the total work, and the longest block."""
        most: Number = 0
        total: Number = 0
        for block in range(len(self.parts)):
            able = [time for rows in self.times.values() if (time := rows[block]) is not None]
            least = min((sum(time) for time in able), default=0)
            most, total = max(most, least), total + least
        share = -(-total // self.devices) if isinstance(total, int) else total / self.devices
        return max(most, share)

    @cached_property
    def time_of_one(self) -> Number:
        """Upper bound on the time in which one micro-batch passes all blocks and returns, on any devices."""
        total: Number = 0
        for block in range(len(self.parts)):
            able = [time for rows in self.times.values() if (time := rows[block]) is not None]
            total += max((sum(time) for time in able), default=0)
        for block in range(len(self.parts) - 1):
            hops = [hop for ends in self.pairs if (hop := self.hop(block, *ends)) is not None]
            total += max((hop.forward + hop.backward + sum(hop.later) for hop in hops), default=0)
        return total or 1

    def hop(self, block: int, one: int, other: int) -> Hop | None:
        """Return the connection from a block on one device to the next block on another; None if there is none."""
        if not are_linked(self.problem.machine, one, other):
            return None
        return hop_between(self.problem.machine, one, other, self.instance.each_layer()[self.parts[block][1] - 1])

    def joined(self, cuts: Sequence[int]) -> Blocks:
        """Return larger blocks, each from one cut to the next."""
        return Blocks(
            self.problem,
            self.instance,
            tuple((self.parts[first][0], self.parts[end - 1][1]) for first, end in pairwise(cuts)),
        )

    def pattern(self, homes: Sequence[int], period: Number, times: Times) -> Pattern:
        """Return the pattern of blocks on their devices."""
        stages = [Stage(tuple(range(*part)), device) for part, device in zip(self.parts, homes, strict=True)]
        return pattern_of(self.problem, stages, period, times)

    def excess(self, pattern: Pattern, in_flight: Sequence[int]) -> list[int]:
        """Return the bytes by which each device's peak exceeds its capacity, as the verifier counts."""
        versions = [versions_of(self.instance.weights, count) for count in in_flight]
        peaks = steady_peaks(self.problem, pattern, versions)
        return excess_of(self.problem.machine, peaks)


def blocks_of(problem: Problem, instance: PipelineInstance, most: int) -> Blocks:
    """Return the layers one by one, or merged into at most `most` blocks of about equal time."""
    layers = instance.each_layer()
    if len(layers) <= most:
        return Blocks(problem, instance, tuple((k, k + 1) for k in range(len(layers))))
    kinds = dict.fromkeys(instance.cluster.types)
    each = [min((time for kind in kinds if (time := layer.work_on(kind)) is not None), default=0) for layer in layers]
    total, done = sum(each), 0.0
    cuts = [0]
    for index, time in enumerate(each):
        left = most - len(cuts)
        # The middle of a layer determines its part.
        if index > cuts[-1] and left and done + time / 2 >= total * len(cuts) / most:
            cuts.append(index)
        done += time
    cuts.append(len(layers))
    return Blocks(problem, instance, tuple(pairwise(cuts)))
