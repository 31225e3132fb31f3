"""One training step of a pipeline, for searches over its orders: stages on devices, micro-batches, times and bytes.

Stages form a chain 0..n-1. Micro-batch b runs forwards (F) through all of them, then backwards (B) in reverse. If a
stage has a separate time for the gradient of its parameters, that operation (W) follows its B at any time. A device
runs one operation at a time.

If layers have several copies, the stages form several such chains, and each micro-batch runs through one of them.
Within a chain, micro-batches are numbered from 0.

Micro-batches are identical, so each stage takes them in ascending order in each phase. Exchanging the names of two
micro-batches brings any schedule into this form, with the same bytes and no later end. A device runs its list strictly
in order. The bytes that it holds therefore depend only on its list, not on the times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, TypeAlias

Op: TypeAlias = tuple[int, int, int]
"""Phase, stage and micro-batch, all counted from 0."""

Lists: TypeAlias = tuple[tuple[Op, ...], ...]
"""One ordered list of operations per device."""

F, B, W, BW = range(4)
"""Phases: forward, backward (only of the input if W is separate), gradient of the parameters, and B and W together."""


@dataclass(frozen=True)
class PipelineModel:
    """Stages on devices.

    Attributes
    ----------
    place : tuple of int
        Device of each stage.
    batches : int
        Number of micro-batches; with several chains, the largest number that runs through one of them.
    forward, backward, weight : tuple of int or float
        Times of a stage for one micro-batch. A stage without `weight` has no W: its B is whole.
    hop : tuple of int or float
        Delay between consecutive stages, in both directions. It counts only between different devices, and any number
        of transfers may overlap.
    activation : tuple of int
        Bytes that a stage holds for a micro-batch from the start of F to the end of B.
    kept : tuple of int
        Bytes that it holds from the end of B to the end of W. Any excess over `activation` is allocated at the start of
        B, where the stage is recomputed.
    fixed : tuple of int
        Bytes that a device always holds, such as parameters; includes devices without a stage.
    capacity : tuple of int or None
        Bytes of each device; None means unlimited.
    chains : tuple of (int, int)
        First stage and number of micro-batches of each chain; empty for one chain of all stages.
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
    chains: tuple[tuple[int, int], ...] = ()

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
        if self.chains and (self.chains[0][0] != 0 or self.batches != max(count for _, count in self.chains)):
            raise ValueError("the first chain begins with stage 0, and one of the chains has all `batches`")
        if any(kept and not weight for kept, weight in zip(self.kept, self.weight, strict=True)):
            raise ValueError("a stage without W keeps nothing after B")

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.place)

    @property
    def devices(self) -> int:
        """Number of devices, including those without a stage."""
        return len(self.fixed)

    @property
    def split(self) -> bool:
        """Whether any stage has a separate W."""
        return any(self.weight)

    @property
    def whole(self) -> bool:
        """Whether all times are integers; then all starts are."""
        rows = (self.forward, self.backward, self.weight, self.hop)
        return all(isinstance(time, int) for row in rows for time in row)

    @cached_property
    def delays(self) -> tuple[float, ...]:
        """Hop into each stage from the previous one; 0 on the same device, and for the first stage of a chain."""
        pairs = zip(self.place[:-1], self.place[1:], self.hop, self.is_head[1:], strict=True)
        return (0, *(hop if one != other and not head else 0 for one, other, hop, head in pairs))

    @cached_property
    def count(self) -> tuple[int, ...]:
        """Number of micro-batches of each stage."""
        return tuple(count for own, count in self.by_chain for _ in own)

    @cached_property
    def is_head(self) -> tuple[bool, ...]:
        """Whether each stage is the first one of its chain."""
        return tuple(stage == own[0] for own, _ in self.by_chain for stage in own)

    @cached_property
    def is_tail(self) -> tuple[bool, ...]:
        """Whether each stage is the last one of its chain."""
        return tuple(stage == own[-1] for own, _ in self.by_chain for stage in own)

    @cached_property
    def by_chain(self) -> tuple[tuple[range, int], ...]:
        """Stages and number of micro-batches of each chain."""
        chains = self.chains or ((0, self.batches),)
        ends = (*(first for first, _ in chains[1:]), self.stages)
        return tuple((range(first, end), count) for (first, count), end in zip(chains, ends, strict=True))

    @cached_property
    def batches_before(self) -> tuple[int, ...]:
        """Number of micro-batches of the chains before each chain."""
        return tuple(accumulate((count for _, count in self.by_chain[:-1]), initial=0))

    @cached_property
    def first_batch(self) -> tuple[int, ...]:
        """First micro-batch of the instance that each stage runs; operations count from it."""
        pairs = zip(self.by_chain, self.batches_before, strict=True)
        return tuple(before for (own, _), before in pairs for _ in own)

    @cached_property
    def on_by_chain(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Stages on each device, ascending, separately for each chain with micro-batches that has some there."""
        used = [stages for stages, count in self.by_chain if count]
        own = [[tuple(stage for stage in stages if stage in here) for stages in used] for here in self.on]
        return tuple(tuple(part for part in parts if part) for parts in own)

    @cached_property
    def times(self) -> tuple[tuple[float, ...], ...]:
        """Time of an operation, by phase and stage."""
        both = tuple(one + other for one, other in zip(self.backward, self.weight, strict=True))
        return (self.forward, self.backward, self.weight, both)

    @cached_property
    def on(self) -> tuple[tuple[int, ...], ...]:
        """Stages on each device, ascending."""
        return tuple(
            tuple(stage for stage, own in enumerate(self.place) if own == device) for device in range(self.devices)
        )

    @cached_property
    def free(self) -> tuple[int | None, ...]:
        """Bytes of each device for the activations of its stages."""
        pairs = zip(self.capacity, self.fixed, strict=True)
        return tuple(None if capacity is None else capacity - fixed for capacity, fixed in pairs)

    @property
    def holds_fixed(self) -> bool:
        """Whether the fixed bytes of each device fit."""
        return all(free is None or free >= 0 for free in self.free)

    @property
    def feasible(self) -> bool:
        """Whether any order fits: the stages of each device can hold one micro-batch and run its backwards."""
        pairs = ((free, own) for free, parts in zip(self.free, self.on_by_chain, strict=True) for own in parts)
        for free, own in pairs:
            more = max((self.kept[stage] - self.activation[stage] for stage in own), default=0)
            if free is not None and sum(self.activation[stage] for stage in own) > free:
                return False
            if free is not None and more > 0 and not self._backs(own, free):
                return False
        return self.holds_fixed

    def _backs(self, own: tuple[int, ...], free: int) -> bool:
        """Whether the backwards of one micro-batch fit in the stages of a device."""
        held = sum(self.activation[stage] for stage in own)
        for stage in reversed(own):
            if held + max(0, self.kept[stage] - self.activation[stage]) > free:
                return False
            held -= self.activation[stage]
        return True

    def operations(self) -> list[Op]:
        """Return all operations, with separate B and W."""
        return [
            (phase, stage, batch)
            for phase in (F, B, W)
            for stage in range(self.stages)
            if phase != W or self.weight[stage]
            for batch in range(self.count[stage])
        ]


class Evaluation(NamedTuple):
    """Result of lists in which every operation starts as early as its list and its data allow.

    Attributes
    ----------
    makespan : int or float
    starts : tuple of tuple
        Start times, in the order of the lists.
    peaks : tuple of int
        Maximum number of bytes of each device, including fixed ones. A release precedes an allocation at the same
        instant.
    """

    makespan: float
    starts: tuple[tuple[float, ...], ...]
    peaks: tuple[int, ...]


def needed(model: PipelineModel, op: Op) -> list[tuple[Op, float]]:
    """Return the operations whose results an operation waits for, with their delays; B also represents BW."""
    phase, stage, batch = op
    if phase == F:
        return [] if model.is_head[stage] else [((F, stage - 1, batch), model.delays[stage])]
    if phase == W:
        return [((B, stage, batch), 0)]
    if model.is_tail[stage]:
        return [((F, stage, batch), 0)]
    return [((F, stage, batch), 0), ((B, stage + 1, batch), model.delays[stage + 1])]


def flow(op: Op) -> tuple[int, int, int]:
    """Return a sort key that puts every operation after those that it waits for (see `needed`).

    Operations of zero length may begin at one instant; the key gives them a valid order.
    """
    phase, stage, batch = op
    return phase, -stage if phase == B else stage, batch


def one_by_one(model: PipelineModel) -> Lists:
    """Return the lists that run one micro-batch after the other, forward and back; they fit if any order does."""
    return in_groups(model, 1)


def in_groups(model: PipelineModel, size: int) -> Lists:
    """Return the lists that run groups of micro-batches after each other, each forward and back."""
    lists: list[list[Op]] = [[] for _ in model.fixed]
    turns = [
        (first, stages, range(first, min(first + size, count)))
        for stages, count in model.by_chain
        for first in range(0, count, size)
    ]
    for _, stages, group in sorted(turns, key=lambda turn: turn[0]):
        for stage in stages:
            lists[model.place[stage]] += [(F, stage, batch) for batch in group]
        for stage in reversed(stages):
            for batch in group:
                lists[model.place[stage]].append((B, stage, batch))
                if model.weight[stage]:
                    lists[model.place[stage]].append((W, stage, batch))
    return tuple(map(tuple, lists))


def evaluate(model: PipelineModel, lists: Sequence[Sequence[Op]]) -> Evaluation | None:
    """Run lists; None on deadlock: an operation waits for itself, or for one that no list contains.

    Parameters
    ----------
    model : PipelineModel
    lists : sequence of sequences of (phase, stage, micro-batch)
        One per device, with micro-batches in any order. The caller ensures that all operations are included.
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
    """Return the maximum number of bytes of each device, which only its list determines."""
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
    """Return the bytes that an operation allocates at its start, and its net change of the bytes held."""
    activation, kept = model.activation[stage], model.kept[stage]
    if phase == F:
        return activation, activation
    if phase == W:
        return 0, -kept
    return max(0, kept - activation), (kept if phase == B else 0) - activation


def complete(model: PipelineModel, lists: Sequence[Sequence[Op]]) -> Lists | None:
    """Return lists with micro-batches renamed to run in order in each stage, and with BW split into B and W.

    None if the lists do not contain exactly the model's operations: each once, on the device of its stage.
    """
    if len(lists) != model.devices:
        return None
    seen: dict[tuple[int, int], set[int]] = {}
    renamed: list[tuple[Op, ...]] = []
    for device, listed in enumerate(lists):
        own: list[Op] = []
        for phase, stage, batch in listed:
            if not 0 <= stage < model.stages or model.place[stage] != device:
                return None
            for part in (B, W) if phase == BW and model.weight[stage] else (B if phase == BW else phase,):
                batches = seen.setdefault((part, stage), set())
                if batch in batches:
                    return None
                own.append((part, stage, len(batches)))
                batches.add(batch)
        renamed.append(tuple(own))
    wanted = {(phase, stage) for phase, stage, _ in model.operations()}
    whole = seen.keys() == wanted and all(len(own) == model.count[stage] for (_, stage), own in seen.items())
    return tuple(renamed) if whole else None
