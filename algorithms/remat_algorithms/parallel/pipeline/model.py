"""One training step of a pipeline, as its orders are searched: stages on devices, micro-batches, times and bytes.

Stages form a chain 0..n-1. Micro-batch b passes forwards (F) through all of them, then backwards (B) in reverse; where
a stage has a time for the gradient of its parameters, that (W) follows its B at any time. A device runs one operation
at a time. Micro-batches are alike, so each stage takes them in ascending order, phase by phase: exchanging the names of
two of them makes any schedule such a one, no later and with the same bytes.

A device runs its list strictly in order; so the bytes that it holds depend on its list alone, and not on the times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

Op: TypeAlias = tuple[int, int, int]
"""Phase, stage and micro-batch, all counted from 0."""

Lists: TypeAlias = tuple[tuple[Op, ...], ...]
"""One list of operations a device, in its order."""

F, B, W, BW = range(4)
"""Phases: forward, backward (of the input, where W is apart), gradient of the parameters, and B with W at one go."""


@dataclass(frozen=True)
class PipelineModel:
    """Stages on devices.

    Attributes
    ----------
    place : tuple of int
        Device of each stage.
    batches : int
        Micro-batches.
    forward, backward, weight : tuple of int or float
        Times of a stage for one micro-batch. A stage without `weight` has no W: its B is whole.
    hop : tuple of int or float
        Delay between consecutive stages, in both directions; it counts where their devices differ, and any number of
        transfers may be under way.
    activation : tuple of int
        Bytes that a stage holds for a micro-batch from the start of F to the end of B.
    kept : tuple of int
        Bytes that it holds from the end of B to the end of W. What of them exceeds `activation` is taken at the start
        of B (a stage that is recomputed there).
    fixed : tuple of int
        Bytes that a device holds throughout, parameters and the like; also of devices without a stage.
    capacity : tuple of int or None
        Bytes of each device; None: without limit.
    """

    place: tuple[int, ...]
    batches: int
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    weight: tuple[float, ...]
    hop: tuple[float, ...]
    activation: tuple[int, ...]
    kept: tuple[int, ...]
    fixed: tuple[int, ...]
    capacity: tuple[int | None, ...]

    def __post_init__(self) -> None:
        stages = len(self.place)
        per_stage = (self.forward, self.backward, self.weight, self.activation, self.kept)
        if not stages or self.batches < 1:
            raise ValueError("a pipeline has at least one stage and one micro-batch")
        if any(len(values) != stages for values in per_stage) or len(self.hop) != stages - 1:
            raise ValueError(f"expected figures for {stages} stages, and {stages - 1} hops")
        if len(self.fixed) != len(self.capacity) or not 0 <= min(self.place) <= max(self.place) < len(self.fixed):
            raise ValueError("expected fixed bytes and a capacity for each device")
        if min(map(min, (*per_stage, self.hop or (0,), self.fixed))) < 0:
            raise ValueError("times and bytes are at least 0")
        if any(kept and not weight for kept, weight in zip(self.kept, self.weight, strict=True)):
            raise ValueError("a stage without W keeps nothing after B")

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.place)

    @property
    def devices(self) -> int:
        """Number of devices, those without a stage included."""
        return len(self.fixed)

    @property
    def split(self) -> bool:
        """Whether any stage has its W apart."""
        return any(self.weight)

    @property
    def whole(self) -> bool:
        """Whether all times are whole numbers; then all starts are."""
        rows = (self.forward, self.backward, self.weight, self.hop)
        return all(isinstance(time, int) for row in rows for time in row)

    @cached_property
    def delays(self) -> tuple[float, ...]:
        """The hop into each stage from the one before it: 0 on one device."""
        pairs = zip(self.place[:-1], self.place[1:], self.hop, strict=True)
        return (0, *(hop if one != other else 0 for one, other, hop in pairs))

    @cached_property
    def times(self) -> tuple[tuple[float, ...], ...]:
        """Time of an operation, by phase and stage."""
        both = tuple(one + other for one, other in zip(self.backward, self.weight, strict=True))
        return (self.forward, self.backward, self.weight, both)

    @cached_property
    def on(self) -> tuple[tuple[int, ...], ...]:
        """The stages on each device, ascending."""
        return tuple(
            tuple(stage for stage, own in enumerate(self.place) if own == device) for device in range(self.devices)
        )

    @cached_property
    def free(self) -> tuple[int | None, ...]:
        """Bytes of each device for what its stages hold."""
        pairs = zip(self.capacity, self.fixed, strict=True)
        return tuple(None if capacity is None else capacity - fixed for capacity, fixed in pairs)

    @property
    def holds_fixed(self) -> bool:
        """Whether each device has room for what it holds throughout."""
        return all(free is None or free >= 0 for free in self.free)

    @property
    def feasible(self) -> bool:
        """Whether any order fits: all stages of a device hold one micro-batch, and it goes back through them."""
        for free, own in zip(self.free, self.on, strict=True):
            more = max((self.kept[stage] - self.activation[stage] for stage in own), default=0)
            if free is not None and sum(self.activation[stage] for stage in own) > free:
                return False
            if free is not None and more > 0 and not self._backs(own, free):
                return False
        return self.holds_fixed

    def _backs(self, own: tuple[int, ...], free: int) -> bool:
        """Whether one micro-batch goes back through the stages of a device."""
        held = sum(self.activation[stage] for stage in own)
        for stage in reversed(own):
            if held + max(0, self.kept[stage] - self.activation[stage]) > free:
                return False
            held -= self.activation[stage]
        return True

    def operations(self) -> list[Op]:
        """All operations, each B apart from its W."""
        return [
            (phase, stage, batch)
            for phase in (F, B, W)
            for stage in range(self.stages)
            if phase != W or self.weight[stage]
            for batch in range(self.batches)
        ]


class Evaluation(NamedTuple):
    """What comes of lists: every operation starts as early as its list and its data allow.

    Attributes
    ----------
    makespan : int or float
    starts : tuple of tuple
        Start times, as the operations stand in the lists.
    peaks : tuple of int
        Most bytes of each device, fixed ones included; a release comes before an acquisition of the same instant.
    """

    makespan: float
    starts: tuple[tuple[float, ...], ...]
    peaks: tuple[int, ...]


def needed(model: PipelineModel, op: Op) -> list[tuple[Op, float]]:
    """Return the operations whose results an operation waits for, each with the delay; B stands for BW, too."""
    phase, stage, batch = op
    if phase == F:
        return [((F, stage - 1, batch), model.delays[stage])] if stage else []
    if phase == W:
        return [((B, stage, batch), 0)]
    if stage == model.stages - 1:
        return [((F, stage, batch), 0)]
    return [((F, stage, batch), 0), ((B, stage + 1, batch), model.delays[stage + 1])]


def evaluate(model: PipelineModel, lists: Sequence[Sequence[Op]]) -> Evaluation | None:
    """Run lists; None where they come to no end: an operation waits for itself, or for one that is in no list.

    Parameters
    ----------
    model : PipelineModel
    lists : sequence of sequences of (phase, stage, micro-batch)
        One a device; micro-batches in any order. Whether all operations are there is for the caller to know.
    """
    ends: dict[Op, float] = {}
    starts: list[list[float]] = [[] for _ in lists]
    clocks: list[float] = [0] * len(lists)
    waiting: dict[Op, list[int]] = {}
    ready = list(range(len(lists)))
    while ready:
        device = ready.pop()
        own = starts[device]
        while len(own) < len(lists[device]):
            phase, stage, batch = op = lists[device][len(own)]
            sources = needed(model, op)
            missing = next((source for source, _ in sources if source not in ends), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(device)
                break
            start = max(clocks[device], max((ends[source] + delay for source, delay in sources), default=0))
            own.append(start)
            clocks[device] = start + model.times[phase][stage]
            done = (B if phase == BW else phase, stage, batch)
            ends[done] = clocks[device]
            ready += waiting.pop(done, [])
    if any(len(own) < len(listed) for own, listed in zip(starts, lists, strict=True)):
        return None
    return Evaluation(max(clocks, default=0), tuple(map(tuple, starts)), peaks(model, lists))


def peaks(model: PipelineModel, lists: Sequence[Sequence[Op]]) -> tuple[int, ...]:
    """Return the most bytes of each device, which its list alone decides."""
    found = []
    for fixed, listed in zip(model.fixed, lists, strict=True):
        held = most = fixed
        for phase, stage, _ in listed:
            taken, left = _bytes(model, phase, stage)
            most = max(most, held + taken)
            held += left
        found.append(most)
    return tuple(found)


def _bytes(model: PipelineModel, phase: int, stage: int) -> tuple[int, int]:
    """Return the bytes that an operation takes at its start, and by how many more its device holds after it."""
    activation, kept = model.activation[stage], model.kept[stage]
    if phase == F:
        return activation, activation
    if phase == W:
        return 0, -kept
    return max(0, kept - activation), (kept if phase == B else 0) - activation


def complete(model: PipelineModel, lists: Sequence[Sequence[Op]]) -> Lists | None:
    """Return lists with micro-batches renamed so that each stage takes them in order, and BW as B and W.

    None where they are not what the model has to run: each operation once, on the device of its stage.
    """
    if len(lists) != model.devices:
        return None
    seen: dict[tuple[int, int], set[int]] = {}
    renamed: list[tuple[Op, ...]] = []
    for device, listed in enumerate(lists):
        own: list[Op] = []
        for phase, stage, batch in listed:
            if not 0 <= stage < model.stages or not 0 <= batch < model.batches or model.place[stage] != device:
                return None
            for part in (B, W) if phase == BW and model.weight[stage] else (B if phase == BW else phase,):
                batches = seen.setdefault((part, stage), set())
                if batch in batches:
                    return None
                own.append((part, stage, len(batches)))
                batches.add(batch)
        renamed.append(tuple(own))
    wanted = {(phase, stage) for phase, stage, _ in model.operations()}
    whole = seen.keys() == wanted and all(len(batches) == model.batches for batches in seen.values())
    return tuple(renamed) if whole else None
