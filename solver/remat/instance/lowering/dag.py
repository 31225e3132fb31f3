"""Task-graph instances: names become indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remat.graph.machine import Machine
from remat.graph.names import Names
from remat.graph.taskgraph import NumberArray, Part, Placeable, Ragged, Resident, TaskGraph, number_array
from remat.instance import DagInstance
from remat.instance.dag import NOWHERE, Task
from remat.instance.machine import ANY
from remat.units import Number

CANNOT = -1
"""Time of a task on a type of processor that cannot run it."""


def lower_dag(instance: DagInstance, machine: Machine) -> TaskGraph:
    """Lower a `dag` instance; values come in the listed order, then those declared by a task's `size`.

    Of times by type only those count that processors of the machine have.
    """
    sizes = {value.id: value.size for value in instance.values}
    for task in instance.tasks:
        if task.size is not None:
            sizes[task.id] = task.size
    index = {name: i for i, name in enumerate(sizes)}
    tasks = instance.tasks
    parallel = [task.parallel for task in tasks]
    some_parallel = any(parallel)
    annotated = any(task.origin is not NOWHERE and task.origin.module for task in tasks)
    free = ANY if instance.is_placeable else ""  # no memory has an empty name
    chosen = [place for place in instance.inputs if place.memory == free]
    placed = {place.value for place in chosen}
    types, times = _times(tasks, machine)
    names = frozenset(processor.name for processor in machine.processors)
    return TaskGraph(
        tasks=Names(task.id for task in tasks),
        values=Names(sizes),
        time=number_array(_least(task, machine) for task in tasks),
        size=np.array(list(sizes.values()), dtype=np.int64),
        reads=Ragged.from_lists([[index[name] for name in task.read] for task in tasks]),
        writes=Ragged.from_lists([[index[name] for name in task.written] for task in tasks]),
        workspace=np.array([task.workspace for task in tasks], dtype=np.int64),
        in_place=np.array([task.in_place for task in tasks], dtype=bool),
        required=np.array([task.required for task in tasks], dtype=bool),
        recomputable=np.array([task.recomputable for task in tasks], dtype=bool),
        once=np.array([task.once for task in tasks], dtype=bool),
        inputs=tuple(Resident(index[place.value], place.memory) for place in instance.inputs if place.memory != free),
        # What lies where it began is there at the end: it stays.
        outputs=tuple(Resident(index[place.value], place.memory) for place in instance.outputs if place.memory != free),
        placeable=tuple(Placeable(index[place.value], place.copies) for place in chosen),
        types=types,
        times=times,
        tied={
            k: frozenset(task.on) for k, task in enumerate(tasks) if task.on is not None and not names <= set(task.on)
        },
        pinned=frozenset(index[name] for name in instance.pinned_inputs if name not in placed),
        static_memory=instance.static_memory,
        parallel_max=np.array([p.max if p else 1 for p in parallel], dtype=np.int64) if some_parallel else None,
        parallel_alpha=np.array([p.alpha if p else 1.0 for p in parallel]) if some_parallel else None,
        parts={
            k: tuple(
                Part(tuple(index[name] for name in part.reads), tuple(index[name] for name in part.writes), part.memory)
                for part in task.parts
            )
            for k, task in enumerate(tasks)
            if task.parts is not None
        },
        busy=frozenset(k for k, task in enumerate(tasks) if task.busy),
        phase=tuple(task.phase for task in tasks) if any(task.phase for task in tasks) else None,
        modules=tuple(task.origin.module for task in tasks) if annotated else None,
        units=instance.units.build(),
    )


def _least(task: Task, machine: Machine) -> Number:
    """Return the least time of a task on the processors that may run it; of all its times where none may."""
    if not isinstance(task.time, dict):
        return task.time
    found = [task.time_on(one.type) for one in machine.processors if task.on is None or one.name in task.on]
    return min((time for time in found if time is not None), default=min(task.time.values()))


def _times(tasks: Sequence[Task], machine: Machine) -> tuple[tuple[str, ...], NumberArray | None]:
    """Return the types, and the time of each task on each; none where it is the same on all of them."""
    types = tuple(dict.fromkeys(processor.type for processor in machine.processors))
    differ = [task for task in tasks if type(task.time) is dict]
    if all(len({task.time_on(name) for name in types}) == 1 and task.time_on(types[0]) is not None for task in differ):
        return (), None
    every = number_array(CANNOT if (time := task.time_on(name)) is None else time for name in types for task in tasks)
    times: NumberArray = every.reshape(len(types), len(tasks))
    return types, times
