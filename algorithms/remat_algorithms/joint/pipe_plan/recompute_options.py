"""The *levels* of a stage: its recompute options, from none to all of it, with the time and bytes of each.

A level is a set of segments of layers to recompute (`remat.schedule.recompute`). With single layers as segments, each
keeps its input until its backward. Longer segments keep one input, and need memory for all their saved values at a time
(Chen et al. 2016). For unequal layers, worthwhile segments come from `rotor`'s curve (`recompute_fronts`). Levels that
another one dominates in time and bytes are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remat.plugin import Layer, Number, PipelineInstance
from remat_algorithms.joint.pipe_plan.recompute_fronts import LONGEST, Fronts
from remat_algorithms.kit.subsample import spread_out

Segments = tuple[tuple[int, ...], ...]

FEW = 4
"""Maximum number of layers of a stage for which every set of segments is an option; with more, layers with the most
bytes per time come first.
"""

MOST_LEVELS = 16
"""Maximum number of levels of a stage, taken at even distances."""


@dataclass(frozen=True, slots=True)
class Level:
    """One recompute option of a stage.

    Attributes
    ----------
    segments : tuple of tuple of int
        Layers counted from the stage's first one.
    recompute_time : number
        Recomputation time.
    held : int
        Bytes from the end of F to the start of B.
    forward : int
        Bytes that F takes, including its input and output.
    backward, early : int
        Bytes that B takes beyond `held`: if segments are recomputed one by one, and if all are recomputed first.
    """

    segments: Segments
    recompute_time: Number
    held: int
    forward: int
    backward: int
    early: int


class StageCosts:
    """Levels of stages of consecutive layers, each kind of stage once (stages of equal layers are equal)."""

    def __init__(
        self, instance: PipelineInstance, layers: Sequence[Layer], types: Sequence[str], recompute: str
    ) -> None:
        self.instance, self.layers, self.types, self.recompute = instance, layers, types, recompute
        self.known: dict[tuple[object, ...], tuple[Level, ...]] = {}
        self.fronts: dict[tuple[object, ...], Fronts] = {}

    def levels(self, own: tuple[int, ...], device: int) -> tuple[Level, ...]:
        """Return the levels of a stage on a device, those that hold most first; the first one recomputes nothing."""
        before = self.layers[own[0] - 1].output_size if own[0] else 0
        back = self.layers[own[0] - 1].gradient_bytes if own[0] else 0
        key = (self.types[device], before, back, *(id(self.layers[layer]) for layer in own))
        found = self.known.get(key)
        if found is None:
            work = _StageBytes(self.instance, [self.layers[layer] for layer in own], before, back)
            found = self.known[key] = self._levels(work, self.types[device], own)
        return found

    def _of_rotor(self, own: tuple[int, ...], name: str) -> Iterator[Segments]:
        """Yield the segments that `rotor` would recompute in a stage; equal layers share tables."""
        end = own[-1] + 1
        first = max(0, end - LONGEST)
        if own[0] < first:
            return
        layers = self.layers[first:end]
        before = self.layers[first - 1].output_size if first else 0
        key = (name, before, *(id(layer) for layer in layers))
        if key not in self.fronts:
            reads = [
                self.instance.backward_reads if layer.backward_reads is None else layer.backward_reads
                for layer in layers
            ]
            self.fronts[key] = Fronts(layers, reads, name, before)
        yield from self.fronts[key].segments(len(own))

    def _levels(self, work: _StageBytes, name: str, own: tuple[int, ...]) -> tuple[Level, ...]:
        layers = work.layers
        times = [layer.time_on("forward_time", name) or 0 for layer in layers]
        ways: list[Segments] = [()]
        if self.recompute != "none":
            ways += self._candidates(layers, times)
            if self.recompute == "any" and len(layers) > FEW:
                ways += self._of_rotor(own, name)
        found = [Level(way, sum(times[index] for segment in way for index in segment), *work.of(way)) for way in ways]
        best: list[Level] = []
        for level in sorted(found, key=lambda one: (-one.held, one.recompute_time, one.backward)):
            beaten = any(
                other.held <= level.held
                and other.recompute_time <= level.recompute_time
                and other.backward <= level.backward
                and other is not level
                and (other.held, other.recompute_time, other.backward)
                != (level.held, level.recompute_time, level.backward)
                for other in found
            )
            same = any((one.held, one.recompute_time) == (level.held, level.recompute_time) for one in best)
            if not same and (not beaten or not level.segments):
                best.append(level)
        first = [level for level in best if not level.segments]
        rest = spread_out([level for level in best if level.segments and level.held < first[0].held], MOST_LEVELS)
        return (*first, *rest)

    def _candidates(self, layers: Sequence[Layer], times: Sequence[Number]) -> list[Segments]:
        """Return segments of a stage that may be worth it, without those of `rotor`.

        Recomputing one layer saves its saved bytes. Recomputing consecutive layers together saves the values between
        them, too, so that layers without saved bytes count.
        """
        if self.recompute == "any" and len(layers) <= FEW:
            return list(_disjoint_runs(len(layers)))[1:]
        tiny = 1e-12 * (1 + sum(times))
        worth = [index for index, layer in enumerate(layers) if layer.saved_size > 0]
        ranked = sorted(worth, key=lambda index: (-layers[index].saved_size / max(times[index], tiny), index))
        counts = range(1, len(ranked) + 1) if self.recompute == "any" else [len(ranked)]
        ways: list[Segments] = [tuple((index,) for index in sorted(ranked[:count])) for count in counts if ranked]
        for length in spread_out(range(2, len(layers) + 1), 6):
            firsts = range(0, len(layers), length)
            ways.append(tuple(tuple(range(first, min(first + length, len(layers)))) for first in firsts))
        return ways


def _disjoint_runs(count: int, first: int = 0) -> Iterator[Segments]:
    """Yield every set of disjoint runs of consecutive layers, the empty set first."""
    yield ()
    for start in range(first, count):
        for end in range(start + 1, count + 1):
            for rest in _disjoint_runs(count, end):
                yield (tuple(range(start, end)), *rest)


class _StageBytes:
    """Bytes of a stage for one micro-batch, task by task."""

    def __init__(self, instance: PipelineInstance, layers: Sequence[Layer], before: int, back: int) -> None:
        self.layers = layers
        self.x = [before, *(layer.output_size for layer in layers)]  # of each layer's input; the last is the output
        self.y = [back, *(layer.gradient_bytes for layer in layers)]
        reads = [instance.backward_reads if layer.backward_reads is None else layer.backward_reads for layer in layers]
        self.input = ["input" in own for own in reads]
        self.output = ["output" in own for own in reads]
        self.split = [layer.is_split for layer in layers]
        self.later = [layer.weight_saved_size if split else 0 for layer, split in zip(layers, self.split, strict=True)]

    def of(self, segments: Segments) -> tuple[int, int, int, int]:
        """Return `held`, `forward`, `backward` and `ahead` of a level."""
        again = {layer for segment in segments for layer in segment}
        firsts = {segment[0] for segment in segments}
        count = len(self.layers)
        # Value k is the input of layer k; its producer, layer k - 1, may read it as its output.
        kept = [
            (k < count and (k in firsts or (k not in again and self.input[k])))
            or (k > 0 and k - 1 not in again and self.output[k - 1])
            for k in range(count + 1)
        ]
        live, most = self.x[0], self.x[0]
        for k, layer in enumerate(self.layers):
            live += self.x[k + 1] + layer.saved_size
            most = max(most, live + layer.forward_workspace)
            live -= (layer.saved_size if k in again else 0) + (0 if kept[k] else self.x[k])
        forward = most
        held = live - (0 if kept[count] else self.x[count])
        return (
            held,
            forward,
            self._back(segments, kept, held, False) - held,
            self._back(segments, kept, held, True) - held,
        )

    def _back(self, segments: Segments, kept: list[bool], held: int, ahead: bool) -> int:
        """Return the maximum bytes of a backward."""
        count = len(self.layers)
        here = list(kept)
        live = most = held + (self.y[count] if count else 0)
        by_end = {segment[-1]: segment for segment in segments}
        if ahead:
            for segment in segments:
                live, most = self._again(segment, here, live, most)
        for k in range(count - 1, -1, -1):
            layer = self.layers[k]
            if k in by_end and not ahead:
                live, most = self._again(by_end[k], here, live, most)
            live += self.y[k] + max(0, self.later[k] - layer.saved_size)
            most = max(most, live + layer.backward_workspace)
            live -= self.y[k + 1] + layer.saved_size - min(layer.saved_size, self.later[k])
            for value in (k, k + 1):
                if here[value] and not (value == k and k > 0 and self.output[k - 1]):
                    here[value] = False
                    live -= self.x[value]
        return most

    def _again(self, segment: tuple[int, ...], here: list[bool], live: int, most: int) -> tuple[int, int]:
        """Recompute a segment."""
        for k in segment:
            live += self.layers[k].saved_size + (0 if here[k + 1] else self.x[k + 1])
            here[k + 1] = True
            most = max(most, live + self.layers[k].forward_workspace)
            unread = k != segment[0] and not self.input[k] and not self.output[k - 1]
            if unread and here[k]:
                here[k] = False
                live -= self.x[k]
        last = segment[-1] + 1
        if not self.output[segment[-1]] and here[last]:
            here[last] = False
            live -= self.x[last]
        return live, most
