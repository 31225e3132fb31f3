"""The use of the machine's parts by an instance, for their canonical order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.graph.canonical import Key, Uses
from remat.instance.kinds import is_adjoint, is_chain, is_dag, is_join, is_tree

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.instance.dag import DagInstance


def uses_of(instance: Instance) -> Uses:
    """Return the largest value of an instance, and its uses of memories, processors and types: O(its size)."""
    if is_dag(instance):
        return _of_dag(instance)
    memories: dict[str, Key] = {}
    if is_chain(instance):
        homes = (("parameters", instance.parameter_memory), ("optimizer", instance.optimizer_memory))
        for what, home in homes:
            if home is not None:
                memories[home] = (*memories.get(home, ()), what)
    elif is_adjoint(instance) and instance.initial_level is not None:
        memories[instance.initial_level] = ("state",)
    return Uses(_largest(instance), memories)


def _largest(instance: Instance) -> int:
    """Return the bytes of the largest value that one task passes to another."""
    if is_chain(instance):
        return max(instance.input_size, *(stage.output_size for stage in instance.stages))
    if is_join(instance):
        return max(size for one in instance.chains for size in (one.input_size, *(s.output_size for s in one.stages)))
    if is_adjoint(instance):
        return instance.largest_state
    return max(instance.output_size) if is_tree(instance) else 1


def _of_dag(instance: DagInstance) -> Uses:
    columns = instance.in_columns()
    places = [(place.memory, "input", place.value) for place in instance.inputs]
    places += [(place.memory, "output", place.value) for place in instance.outputs]
    memories: dict[str, list[Key]] = {}
    for memory, role, value in places:
        found = columns.values.find(value)
        if memory is not None and found is not None:
            memories.setdefault(memory, []).append((role, int(columns.size[found]), value in instance.pinned_inputs))
    processors: dict[str, list[Key]] = {}
    types: dict[str, list[Key]] = {}
    for task in columns.whole.values():
        times = tuple(sorted(task.time.values())) if isinstance(task.time, dict) else (task.time,)
        for part in task.parts or ():
            if part.memory is not None:
                memories.setdefault(part.memory, []).append(("part", len(part.reads), len(part.writes)))
        for name in task.on or ():
            processors.setdefault(name, []).append(times)
        for name, time in task.time.items() if isinstance(task.time, dict) else ():
            types.setdefault(name, []).append((*times, time))
        for name, energy in task.energy.items() if isinstance(task.energy, dict) else ():
            types.setdefault(name, []).append((*times, energy))
    return Uses(
        int(columns.size.max(initial=0)),
        *({name: tuple(sorted(own)) for name, own in each.items()} for each in (memories, processors, types)),
    )
