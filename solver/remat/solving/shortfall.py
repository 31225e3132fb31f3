"""Explanation of a budget that is too small: static bytes, the critical task's needs, and remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from remat.graph.bounds import needed_tasks
from remat.graph.taskgraph import GRADIENTS, PARAMETERS, STATES, TaskGraph
from remat.instance.kinds import is_pipeline
from remat.plugin.problem import Problem, budgeted_memories, device_memories
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget
from remat.plugin.registry import algorithms
from remat.plugin.topological_order import reference_order
from remat.solving.entry import Setup
from remat.solving.minimum_budget import at_peak
from remat.solving.problem_setup import Control
from remat.solving.relative_budget import Wholes
from remat.solving.remedies import Need, Remedy, remedies
from remat.solving.shortfall_layers import LayerActivations, activations_by_layer, result_at
from remat.solving.static_split import static_split

if TYPE_CHECKING:
    from remat.graph.bounds import MemoryBound
    from remat.graph.machine import Machine
    from remat.instance import Instance
    from remat.plugin.registry import Algorithm
    from remat.solving.result import Result

TRAINING = (PARAMETERS, GRADIENTS, STATES)
"""Memory of training other than activations, by the names of terms in task graphs."""

MOST_NAMED = 3
"""Values that a part of a need names."""

MOST_EXPLAINED = 2_000
"""Tasks of an instance whose schedule is made again to tell what sets a minimum budget."""

TRIAL_SECONDS = 10.0
"""Time limit of a solve that tries a suggested budget; it ends with its first schedule."""

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
    values : tuple of str
        The largest values of this part, at most `MOST_NAMED`. For ``kept for other tasks``, they are candidates: values
        that exist before the critical task and are read after it in the reference order.
    resident : bool
        Whether the values are resident in a schedule of this budget; otherwise they are candidates.
    layers : tuple of LayerActivations
        For a pipeline, if the values are known: those of a layer and a micro-batch, by layers. The largest first.
    """

    what: str
    size: int
    values: tuple[str, ...] = ()
    resident: bool = True
    layers: tuple[LayerActivations, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The reason why there is no schedule within a budget.

    Attributes
    ----------
    memory : str
        Empty if all memories together are too small.
    capacity : int
        Capacity; of all memories together if `memory` is empty.
    need : int
        If `proved`, bytes that every schedule needs. Otherwise the smallest budget known to be sufficient, or else the
        largest known to be insufficient.
    proved : bool
    task : int or None
        The task that needs these bytes.
    parts : tuple of Part
        They add up to `need`; the largest first.
    split : mapping of str to int
        Parameters, gradients and optimizer states of the memory, if known; for a pipeline, the share of a device if
        all devices hold equal shares.
    budget : mapping of memory name to size
        A budget for every limited memory with which a schedule is found; empty if none is known. For a pipeline, the
        single budget of all devices has an empty name.
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

    def to_dict(self, graph: TaskGraph) -> dict[str, Any]:
        """Return it as a JSON object, with the name of the critical task."""
        parts = [asdict(part) | {"values": list(part.values)} for part in self.parts]
        return {
            "memory": self.memory or None,
            "capacity": self.capacity,
            "need": self.need,
            "proved": self.proved,
            "task": None if self.task is None else graph.tasks[self.task],
            "parts": parts,
            "split": dict(self.split),
            "budget": dict(self.budget),
            "remedies": [asdict(remedy) for remedy in self.remedies],
        }


def shortfall_of(result: Result) -> Shortfall | None:
    """Return why an answer has no schedule; None if it has one, or if no memory is known to be too small."""
    instance, machine, least = result.instance, result.machine, result.least_budget
    if result.report is not None or instance is None or (least is None and result.scope == ALL_SCHEDULES):
        return None  # no budget would do
    known = least is not None and least.sufficient
    whole = None if known or len(result.graph.tasks) > MOST_TASKS else _whole(instance, machine, least)
    enough = least if known else whole if whole is not None and _is_found(result, whole) else None
    proof = _proof(result)
    need = proof or least or whole
    together = _together(result)
    if together is not None and (proof is None or not _alone(result)):
        proof = need = LeastBudget(together.size, together.task, False, machine.processors[0].memory, ALL_SCHEDULES)
        memories = list(range(len(machine.memories)))
    else:
        memories = [] if need is None else [need.memory]
    capacities = [machine.memories[index].capacity for index in memories]
    if need is None or None in capacities:
        return None
    capacity = sum(size for size in capacities if size is not None)
    if capacity >= need.size:
        return None
    shared = is_pipeline(instance) and len(memories) == 1 and len(machine.processors) > 1
    split = _split(instance, result.graph, machine, memories, shared=shared)
    if need is least and least is not None:
        explained = _explained(result, least)
        need = explained if explained.size > capacity else least
    parts = _parts(result.graph, machine, need, memories, {} if shared else split, proved=proof is not None)
    whole_need = _need(result.graph, need, capacity, split, parts, shared=shared, proved=proof is not None)
    divisible = Problem(instance, machine).in_parts
    return Shortfall(
        memory=machine.memories[need.memory].name if len(memories) == 1 else "",
        capacity=capacity,
        need=need.size,
        proved=proof is not None,
        task=need.task,
        parts=parts,
        split=split,
        budget={} if enough is None else _budget(instance, machine, enough),
        remedies=tuple(remedies(instance, machine, whole_need, divisible=divisible)),
    )


def _explained(result: Result, least: LeastBudget) -> LeastBudget:
    """Return the budget of an algorithm with one schedule with the task and the values at its peak.

    Other algorithms search, which may take long; a portfolio has already done this. Orders of a pipeline that fit the
    budget need no search.
    """
    if not least.sufficient or least.values is not None or len(result.graph.tasks) > MOST_EXPLAINED:
        return least
    known = result_at(result, least)
    if known is not None:
        return _at_its_peak(known, least)
    found = _by_strategy(result, least)
    return least if found is None or found.report is None else _at_its_peak(found, least)


def _at_its_peak(found: Result, least: LeastBudget) -> LeastBudget:
    """Return the budget with the task and the values at the peak of a schedule; unchanged if that peak is another.

    If an algorithm asks for more than its orders need, the size becomes that need.
    """
    if found.instance is None:
        return least
    own = budgeted_memories(found.instance, found.machine, least.memory)
    peak = max((at_peak(found, memory) for memory in own), key=lambda one: one.size)
    if peak.size > least.size or (peak.size < least.size and least.orders is None):
        return least
    held = found.peak_of(found.machine.memories[peak.memory].name)
    names = [] if held is None else [one.name for one in held.held if one.made_by]
    values = tuple(value for name in names if (value := found.graph.values.find(name)) is not None)
    return replace(least, size=peak.size, task=peak.task, memory=peak.memory, values=values)


def _by_strategy(result: Result, least: LeastBudget) -> Result | None:
    """Return the answer of an algorithm with one schedule at a budget; None for other algorithms."""
    solver = _named(result)
    if solver is None or solver.guarantee != "strategy":
        return None
    return _solved(result, solver, least, Control(seed=result.seed))


def _named(result: Result) -> Algorithm | None:
    """Return the algorithm that answered, unless it is a portfolio."""
    return next((one for one in algorithms() if one.name == result.algorithm), None)


def _solved(result: Result, solver: Algorithm, least: LeastBudget, control: Control) -> Result | None:
    if result.instance is None:
        return None
    setup = Setup(Problem(result.instance, result.machine), solver, dict(result.options))
    return setup.solve_within(control, _budget(result.instance, result.machine, least))


def _is_found(result: Result, whole: LeastBudget) -> bool:
    """Whether the algorithm that answered finds a schedule at a budget that avoids recomputation.

    It may do other things than to keep everything: offload more than another memory holds, say. Exact algorithms are
    taken at their word, as is a portfolio.
    """
    solver = _named(result)
    if not whole.sufficient or solver is None or solver.guarantee == "exact":
        return whole.sufficient
    if len(result.graph.tasks) > MOST_EXPLAINED:
        return True
    found = _solved(result, solver, whole, Control(seed=result.seed, gap="100%", time_limit=TRIAL_SECONDS))
    return found is not None and found.report is not None


def _together(result: Result) -> MemoryBound | None:
    """Return the bound on all memories together if it exceeds their capacities."""
    capacities = [memory.capacity for memory in result.machine.memories]
    bound = result.total_bound
    if bound is None or None in capacities:
        return None
    return bound if bound.size > sum(size for size in capacities if size is not None) else None


def _alone(result: Result) -> bool:
    """Whether a memory alone is too small."""
    capacity = {memory.name: memory.capacity for memory in result.machine.memories}
    return any(
        (limit := capacity[name]) is not None and bound.size > limit for name, bound in result.memory_bounds.items()
    )


def _proof(result: Result) -> LeastBudget | None:
    """Return the largest bound over all schedules that exceeds a capacity."""
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
    wholes = Wholes(Problem(instance, machine))
    peaks = wholes.peaks
    if not peaks:
        return None
    devices = device_memories(instance, machine)
    if devices:
        fullest = max(devices, key=lambda index: (peaks.get(machine.memories[index].name, 0), -index))
    else:
        fullest = least.memory if least is not None else machine.processors[0].memory
    size = peaks.get(machine.memories[fullest].name, 0)
    over = [m for k, m in enumerate(machine.memories) if k != fullest and k not in devices and m.capacity is not None]
    enough = wholes.is_offered and all(peaks.get(memory.name, 0) <= (memory.capacity or 0) for memory in over)
    return LeastBudget(size, None, enough, fullest) if size else None


def _budget(instance: Instance, machine: Machine, enough: LeastBudget) -> dict[str, int]:
    if not enough.sufficient:
        return {}
    if device_memories(instance, machine):
        return {"": enough.size}
    limited = {memory.name: memory.capacity for memory in machine.memories if memory.capacity is not None}
    return limited | {machine.memories[enough.memory].name: enough.size}


def _parts(
    graph: TaskGraph,
    machine: Machine,
    least: LeastBudget,
    memories: Sequence[int],
    split: Mapping[str, int],
    *,
    proved: bool,
) -> tuple[Part, ...]:
    """Split a need into static bytes, bytes of the critical task, and the rest."""
    static = sum(graph.static_bytes(machine, memory) for memory in memories)
    found = {STATIC: min(static, least.size)}
    named: dict[str, Sequence[int]] = {}
    left = least.size - found[STATIC]
    if least.task is not None:
        named[READ], writes = graph.reads[least.task].tolist(), graph.writes[least.task].tolist()
        named[WRITTEN] = [value for value in writes if value not in named[READ]]
        read, written = (sum(int(graph.size[value]) for value in named[what]) for what in (READ, WRITTEN))
        added = max(0, written - read) if graph.in_place[least.task] else written
        for what, size in ((READ, read), (WORKSPACE, int(graph.workspace[least.task])), (WRITTEN, added)):
            found[what] = min(size, left)
            left -= found[what]
    touched = named.get(READ, [])
    there = {graph.term(value) for value in graph.available} if graph.terms else set[str]()
    resident = [value for value in least.values or () if value not in (*touched, *named.get(WRITTEN, ()))]
    for term in TRAINING:
        if term not in there:
            continue
        if least.values is not None:
            size = sum(int(graph.size[value]) for value in resident if graph.term(value) == term)
        else:
            mine = sum(int(graph.size[value]) for value in touched if graph.term(value) == term)
            size = split.get(term, 0) - mine
        found[term] = min(max(0, size), left)
        left -= found[term]
    found[REST] = left
    if least.values is not None:  # of a schedule: no candidates
        named[REST] = [value for value in resident if not (graph.terms and found.get(graph.term(value)))]
    else:
        named[REST] = _rest(graph, machine, least, memories, left, found, proved=proved)
    certain = least.values is not None or least.task is None  # without a task, they are there at the start or the end
    listed = [
        Part(
            what,
            size,
            _largest(graph, named.get(what, ()), size if what == REST else None),
            resident=what != REST or certain or set(named[REST]) <= graph.available,
            layers=activations_by_layer(graph, named[REST]) if what == REST and least.values is not None else (),
        )
        for what, size in found.items()
        if size
    ]
    return tuple(sorted(listed, key=lambda part: -part.size)) or (Part(REST, least.size),)


def _rest(
    graph: TaskGraph,
    machine: Machine,
    least: LeastBudget,
    memories: Sequence[int],
    size: int,
    found: Mapping[str, int],
    *,
    proved: bool,
) -> Sequence[int]:
    """Return the values that may take the bytes beyond the needs of the task."""
    rest = _candidates(graph, machine, least.task, memories, size) if size else []
    # A proof counts, in addition to the task, only values that no task writes, without the terms `found`.
    certain = [value for value in rest if value in graph.available and not found.get(graph.term(value))]
    return certain if proved and certain else rest


def _largest(graph: TaskGraph, values: Sequence[int], most: int | None = None) -> tuple[str, ...]:
    """Return the names of the largest values of at most `most` bytes."""
    fitting = [value for value in values if graph.size[value] and (most is None or graph.size[value] <= most)]
    chosen = sorted(fitting, key=lambda value: (-int(graph.size[value]), value))[:MOST_NAMED]
    return tuple(graph.values[value] for value in chosen)


def _candidates(graph: TaskGraph, machine: Machine, task: int | None, memories: Sequence[int], size: int) -> list[int]:
    """Return the values that may be resident while a task runs.

    Without a task, they are the values at the start or the end if these have `size` bytes; otherwise unknown.
    """
    if task is None:
        first, names = machine.memories[0].name, {machine.memories[memory].name for memory in memories}
        ends = {
            sum(int(graph.size[place.value]) for place in places): [place.value for place in places]
            for places in (
                [place for place in listed if (place.memory or first) in names]
                for listed in (graph.inputs, graph.outputs)
            )
        }
        most = max(ends)
        return ends[most] if most >= size else []
    count, last = len(graph.values), len(graph.tasks)
    place = np.full(last, last)
    started = graph.starting_with((one.value, machine.memories[0].name) for one in graph.placeable)
    order = reference_order(started, needed_tasks(graph).once)
    place[order] = np.arange(len(order))
    begin, end = np.full(count, last), np.full(count, -1)
    np.minimum.at(begin, graph.writes.items, place[graph.writes.rows])
    begin[list(graph.available)] = -1
    np.maximum.at(end, graph.reads.items, np.where(place == last, -1, place)[graph.reads.rows])
    end[[output.value for output in graph.outputs]] = last
    live = (begin < place[task]) & (end > place[task])
    live[graph.reads[task]] = live[graph.writes[task]] = False
    own: list[int] = np.flatnonzero(live).tolist()
    return own


def _split(
    instance: Instance, graph: TaskGraph, machine: Machine, memories: Sequence[int], *, shared: bool
) -> dict[str, int]:
    """Return the bytes of parameters, gradients and optimizer states in memories, if the instance has them.

    A device of a pipeline counts an equal share (`shared`), because the schedule chooses the device of each layer.
    """
    if graph.terms:
        first, names = machine.memories[0].name, {machine.memories[memory].name for memory in memories}
        placed = {place.value: place.memory or first for place in graph.inputs}
        found = dict.fromkeys(TRAINING, 0)
        for value, size in enumerate(graph.size.tolist()):
            term = graph.term(value)
            made = term == GRADIENTS and value not in placed
            if term in found and (is_pipeline(instance) or made or placed.get(value) in names):
                found[term] += size
        if shared:
            found = {term: size // len(machine.processors) for term, size in found.items()}
        return {term: size for term, size in found.items() if size}
    if instance.kind == "chain" and graph.static_memory:
        split = static_split(instance.source, graph.static_memory)
        return {term: split[term] for term in TRAINING if term in split}
    return {}


def _need(
    graph: TaskGraph,
    least: LeastBudget,
    capacity: int,
    split: Mapping[str, int],
    parts: Sequence[Part],
    *,
    shared: bool,
    proved: bool,
) -> Need:
    """Return a need by what remedies can change."""
    found = {part.what: part.size for part in parts}
    held, permanent = {term: found[term] for term in TRAINING if term in found}, found.get(STATIC, 0)
    touched: dict[str, int] = {}
    if not graph.terms:  # the training of a chain with static memory
        held, permanent = dict(split), permanent - sum(split.values())
    elif least.task is not None:
        written = [] if graph.in_place[least.task] else graph.writes[least.task].tolist()  # else over what it reads
        for value in {*graph.reads[least.task].tolist(), *written}:
            term, size = graph.term(value), int(graph.size[value])
            if term in TRAINING and size:
                touched[term] = touched.get(term, 0) + size
    return Need(
        size=least.size,
        capacity=capacity,
        split=split,
        held=held,
        touched=touched,
        permanent=permanent,
        task=sum(found.get(what, 0) for what in (READ, WRITTEN, WORKSPACE)),
        shared=shared,
        proved=proved,
        others=_largest_task_without_states(graph) if graph.terms else 0,
    )


def _largest_task_without_states(graph: TaskGraph) -> int:
    """Return the most bytes that a task reads, writes and works in, of those that touch no optimizer states."""
    if not len(graph.tasks):
        return 0
    sums, is_update = graph.workspace.astype(np.int64).copy(), np.zeros(len(graph.tasks), bool)
    is_state = np.array([graph.term(value) == STATES for value in range(len(graph.values))])
    for rows, items, counts in (
        (graph.reads.rows, graph.reads.items, np.ones(len(graph.tasks), bool)),
        (graph.writes.rows, graph.writes.items, ~np.asarray(graph.in_place, bool)),
    ):
        np.add.at(sums, rows, np.where(counts[rows], graph.size[items], 0))
        is_update[rows[is_state[items]]] = True
    return int(sums[~is_update].max(initial=0))
