"""Why a budget is too small: static bytes, the critical task's needs, and remedies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remat.graph.taskgraph import GRADIENTS, PARAMETERS, STATES, TaskGraph
from remat.instance.kinds import is_pipeline
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget
from remat.solving.minimum_budget import device_memories
from remat.solving.relative_budget import Wholes

if TYPE_CHECKING:
    from remat.graph.machine import Machine
    from remat.instance import Instance
    from remat.solving.result import Result

TRAINING = (PARAMETERS, GRADIENTS, STATES)
"""What training holds beside activations, by the names that task graphs give these terms."""

MOST_SHARES = 1024
"""Devices or ranks that a remedy may ask for."""

LEAST_SHARE = 5
"""Per cent of a batch, at the least, that a remedy names."""

MOST_TASKS = 200_000
"""Tasks of an instance whose peak without recomputation is computed for a suggestion."""

STATIC, READ, WRITTEN, WORKSPACE, REST = "static memory", "read", "written", "workspace", "kept for other tasks"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the needed bytes.

    Attributes
    ----------
    what : str
        ``static memory``; ``parameters`` or ``optimizer states`` that lie there; ``read``, ``written`` or
        ``workspace``, of the critical task; ``kept for other tasks``, which may be recomputed or offloaded.
    size : int
    """

    what: str
    size: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy, and the bytes that the memory then needs with unchanged activations.

    Attributes
    ----------
    what : str
    need : int
    helps : bool
        False for what is often tried first, and is in vain here.
    """

    what: str
    need: int
    helps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Why there is no schedule within a budget.

    Attributes
    ----------
    memory : str
    capacity : int
    need : int
        Bytes that every schedule needs, if `proved`; else those of the smallest budget that is known to do, or of the
        largest that is known not to.
    proved : bool
    task : int or None
        The task at which so much is needed.
    parts : tuple of Part
        They add up to `need`; the largest first.
    split : mapping of str to int
        Parameters, gradients and optimizer states of the memory, where they are known; of a pipeline the share of a
        device if all hold as much.
    budget : mapping of memory name to size
        A budget with which a schedule is found, of every memory that is limited; empty where none is known. Of a
        pipeline the one budget of all devices, under the empty name.
    remedies : tuple of Remedy
    """

    memory: str
    capacity: int
    need: int
    proved: bool
    task: int | None
    parts: tuple[Part, ...]
    split: Mapping[str, int]
    budget: Mapping[str, int]
    remedies: tuple[Remedy, ...] = ()

    @property
    def cause(self) -> Part:
        """The largest part."""
        return self.parts[0]


def shortfall_of(result: Result) -> Shortfall | None:
    """Return why an answer has no schedule; None if it has one, or if no memory is known to be too small."""
    instance, machine, least = result.instance, result.machine, result.least_budget
    if result.report is not None or instance is None or (least is None and result.scope == ALL_SCHEDULES):
        return None  # no budget would do
    known = least is not None and least.sufficient
    whole = None if known or len(result.graph.tasks) > MOST_TASKS else _whole(instance, machine, least)
    enough = least if least is not None and least.sufficient else whole
    proof = _proof(result)
    need = proof or least or whole
    capacity = None if need is None else machine.memories[need.memory].capacity
    if need is None or capacity is None or capacity >= need.size:
        return None
    split = _split(instance, result.graph, machine, need.memory)
    parts = _parts(result.graph, machine, need, {} if is_pipeline(instance) else split)
    return Shortfall(
        memory=machine.memories[need.memory].name,
        capacity=capacity,
        need=need.size,
        proved=proof is not None,
        task=need.task,
        parts=parts,
        split=split,
        budget={} if enough is None else _budget(instance, machine, enough),
        remedies=tuple(_remedies(instance, machine, need.size, capacity, split, parts)),
    )


def _proof(result: Result) -> LeastBudget | None:
    """Return the bound over all schedules that exceeds a capacity, the largest where several do."""
    found = []
    for index, memory in enumerate(result.machine.memories):
        bound = result.memory_bounds.get(memory.name)
        if bound is not None and memory.capacity is not None and bound.size > memory.capacity:
            found.append(LeastBudget(bound.size, bound.task, False, index, ALL_SCHEDULES))
    least = result.least_budget
    if least is not None and least.scope == ALL_SCHEDULES:
        found.append(least)
    return max(found, key=lambda one: one.size, default=None)


def _whole(instance: Instance, machine: Machine, least: LeastBudget | None) -> LeastBudget | None:
    """Return the budget that avoids all recomputation; None if no such schedule is known."""
    peaks = Wholes(Problem(instance, machine)).peaks
    if not peaks:
        return None
    devices = device_memories(instance, machine)
    if devices:
        fullest = max(devices, key=lambda index: (peaks.get(machine.memories[index].name, 0), -index))
    else:
        fullest = least.memory if least is not None else machine.processors[0].memory
    size = peaks.get(machine.memories[fullest].name, 0)
    over = [m for k, m in enumerate(machine.memories) if k != fullest and k not in devices and m.capacity is not None]
    enough = all(peaks.get(memory.name, 0) <= (memory.capacity or 0) for memory in over)
    return LeastBudget(size, None, enough, fullest) if size else None


def _budget(instance: Instance, machine: Machine, enough: LeastBudget) -> dict[str, int]:
    if not enough.sufficient:
        return {}
    if device_memories(instance, machine):
        return {"": enough.size}
    limited = {memory.name: memory.capacity for memory in machine.memories if memory.capacity is not None}
    return limited | {machine.memories[enough.memory].name: enough.size}


def _parts(graph: TaskGraph, machine: Machine, least: LeastBudget, split: Mapping[str, int]) -> tuple[Part, ...]:
    """Split a need into what is static, what the critical task touches, and the rest."""
    static = graph.static_bytes(machine, least.memory)
    found = {STATIC: min(static, least.size)}
    left = least.size - found[STATIC]
    if least.task is not None:
        reads, writes = graph.reads[least.task].tolist(), graph.writes[least.task].tolist()
        fresh = [value for value in writes if value not in reads]
        for what, size in (
            (READ, sum(int(graph.size[value]) for value in reads)),
            (WORKSPACE, int(graph.workspace[least.task])),
            (WRITTEN, sum(int(graph.size[value]) for value in fresh)),
        ):
            found[what] = min(size, left)  # what is written in place of something read takes no more
            left -= found[what]
    touched = [] if least.task is None else graph.reads[least.task].tolist()
    for term in (PARAMETERS, STATES) if graph.terms else ():
        mine = sum(int(graph.size[value]) for value in touched if graph.term(value) == term)
        found[term] = min(max(0, split.get(term, 0) - mine), left)
        left -= found[term]
    found[REST] = left
    listed = [Part(what, size) for what, size in found.items() if size]
    return tuple(sorted(listed, key=lambda part: -part.size)) or (Part(REST, least.size),)


def _split(instance: Instance, graph: TaskGraph, machine: Machine, memory: int) -> dict[str, int]:
    """Return how much of parameters, gradients and optimizer states a memory holds, where the instance says that.

    Of a pipeline it is an equal share of each device: where layers lie is the schedule's choice.
    """
    if graph.terms:
        first, name = machine.memories[0].name, machine.memories[memory].name
        placed = {place.value: place.memory or first for place in graph.inputs}
        found = dict.fromkeys(TRAINING, 0)
        for value, size in enumerate(graph.size.tolist()):
            term = graph.term(value)
            made = term == GRADIENTS and value not in placed
            if term in found and (is_pipeline(instance) or made or placed.get(value) == name):
                found[term] += size
        if is_pipeline(instance):
            found = {term: size // len(machine.processors) for term, size in found.items()}
        return {term: size for term, size in found.items() if size}
    if instance.kind == "chain" and graph.static_memory:
        return _of_source(instance.source, graph.static_memory)
    return {}


def _of_source(source: str | None, static: int) -> dict[str, int]:
    """Split the static memory of a generated transformer: the same with parameters as values says what there is."""
    from remat.generate import generate
    from remat.generate.source_command import generated_by

    made = generated_by(source)
    if made is None or made[:2] != ("chain", "transformer"):
        return {}
    _, _, parameters = made
    if parameters.get("frozen"):
        return {PARAMETERS: static}
    try:
        document = generate("chain", "transformer", **parameters | {"parameters": "device", "states": "device"})
    except ValueError:
        return {}
    found = dict.fromkeys(TRAINING, 0)
    for stage in document["stages"]:
        count, size = stage.get("repeat", 1), stage.get("parameter_size", 0)
        found[PARAMETERS] += count * size
        found[GRADIENTS] += count * stage.get("parameter_gradient_size", size)
        found[STATES] += count * stage.get("optimizer_size", 0)
    return {term: size for term, size in found.items() if size} if sum(found.values()) == static else {}


def _remedies(
    instance: Instance,
    machine: Machine,
    need: int,
    capacity: int,
    split: Mapping[str, int],
    parts: tuple[Part, ...],
) -> Iterator[Remedy]:
    """Yield what makes room, each with the bytes that are then needed."""
    parameters, states, training = split.get(PARAMETERS, 0), split.get(STATES, 0), sum(split.values())
    if is_pipeline(instance):
        devices = len(machine.processors)
        whole = training * devices
        count = max(devices + 1, -(-whole // capacity) if capacity else 0)
        if whole and count <= MOST_SHARES:
            yield Remedy(f"{count} devices or more: parameters, gradients and states of each", -(-whole // count))
    elif training:
        if states:
            leave = states + split.get(GRADIENTS, 0)  # gradients go where the states are
            yield Remedy("gradients and optimizer states at the host", max(0, need - leave))
            yield Remedy("parameters at the host, too", max(0, need - leave - parameters))
        count = 2
        while count < MOST_SHARES and need - training + -(-training // count) > capacity:
            count *= 2
        left = need - training + -(-training // count)
        if left <= capacity:
            yield Remedy(f"{count} devices or ranks that share parameters, gradients and states (ZeRO stage 3)", left)
    fixed = max(training, sum(part.size for part in parts if part.what == STATIC))
    if fixed < need and instance.kind in ("chain", "pipeline"):
        share = 100 * (capacity - fixed) // (need - fixed)
        if share >= LEAST_SHARE:
            yield Remedy(f"a batch of at most {share} % of this one", fixed + (need - fixed) * share // 100)
        elif training and share <= 0:
            yield Remedy("a smaller batch", fixed, helps=False)
