"""Task-graph instances: names become indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.graph.taskgraph import (
    NumberArray,
    Part,
    Placeable,
    Resident,
    TaskEnergy,
    TaskGraph,
    number_array,
)
from remat.instance.columns import GraphColumns
from remat.units import Number

if TYPE_CHECKING:
    from remat.instance.dag import DagInstance
    from remat.instance.tasks import Task

CANNOT = -1
"""Time of a task on a type of processor that cannot run it."""


def lower_dag(instance: DagInstance, machine: Machine) -> TaskGraph:
    """Lower a `dag` instance; values are in the listed order, then those declared by a task's `size`.

    Times by type count only for the types of the machine's processors.
    """
    from remat.instance.machine import ANY

    columns = instance.in_columns()
    whole, index = columns.whole, columns.values.find
    parallel = {k: task.parallel for k, task in whole.items() if task.parallel is not None}
    count = len(columns.tasks)
    free = ANY if instance.is_placeable else ""  # no memory has an empty name
    chosen = [place for place in instance.inputs if place.memory == free]
    placed = {place.value for place in chosen}
    types, times = _times(columns, machine)
    names = frozenset(processor.name for processor in machine.processors)

    def value(name: str) -> int:
        found = index(name)
        assert found is not None
        return found

    return TaskGraph(
        tasks=columns.tasks,
        values=columns.values,
        time=_least_times(columns, machine),
        size=columns.size,
        reads=columns.reads,
        writes=columns.writes,
        workspace=columns.workspace,
        in_place=columns.in_place,
        required=columns.required,
        recomputable=columns.recomputable,
        once=columns.once,
        inputs=tuple(Resident(value(place.value), place.memory) for place in instance.inputs if place.memory != free),
        # A value that must end where it began needs no entry: it stays.
        outputs=tuple(Resident(value(place.value), place.memory) for place in instance.outputs if place.memory != free),
        placeable=tuple(Placeable(value(place.value), place.copies) for place in chosen),
        types=types,
        times=times,
        energy=_energy(columns, machine),
        tied={k: frozenset(task.on) for k, task in whole.items() if task.on is not None and not names <= set(task.on)},
        pinned=frozenset(value(name) for name in instance.pinned_inputs if name not in placed),
        ratios={k: value.ratio for k, value in columns.shown.items() if value.ratio is not None}
        if any(link.packed for link in machine.links)
        else {},
        static_memory=instance.static_memory,
        parallel_max=_filled(count, 1, {k: one.max for k, one in parallel.items()}, np.dtype(np.int64)),
        parallel_alpha=_filled(count, 1, {k: one.alpha for k, one in parallel.items()}, np.dtype(np.float64)),
        parts={
            k: tuple(
                Part(tuple(map(value, part.reads)), tuple(map(value, part.writes)), part.memory) for part in task.parts
            )
            for k, task in whole.items()
            if task.parts is not None
        },
        busy=frozenset(k for k, task in whole.items() if task.busy),
        phase=_phases(columns),
        modules=_modules(columns),
        units=instance.units.build(),
    )


def _filled(count: int, default: float, values: Mapping[int, float], dtype: np.dtype[Any]) -> NumberArray | None:
    """Return a column with a default and other values at some tasks; None if no task has another value."""
    if not values:
        return None
    column = np.full(count, default, dtype=dtype)
    column[list(values)] = list(values.values())
    return column


def _phases(columns: GraphColumns) -> tuple[str, ...] | None:
    phases = [""] * len(columns.tasks) if columns.phase is None else list(columns.phase)
    for k, task in columns.whole.items():
        phases[k] = task.phase
    return tuple(phases) if any(phases) else None


def _modules(columns: GraphColumns) -> tuple[str, ...] | None:
    modules = [""] * len(columns.tasks)
    if columns.origin is not None:
        modules = ["" if origin is None else origin[0] or "" for origin in columns.origin]
    for k, task in columns.whole.items():
        modules[k] = task.origin.module
    return tuple(modules) if any(modules) else None


def _least_times(columns: GraphColumns, machine: Machine) -> NumberArray:
    differ = _by_type(columns)
    if not differ:
        return columns.times
    times = list(columns.time_list())
    for k, task in differ.items():
        times[k] = _least(task, machine)
    return number_array(times)


def _by_type(columns: GraphColumns) -> dict[int, Task]:
    return {k: task for k, task in columns.whole.items() if isinstance(task.time, dict)}


def _least(task: Task, machine: Machine) -> Number:
    """Return the minimum time of a task on the processors that may run it; over all its times if none may."""
    assert isinstance(task.time, dict)
    found = [task.time_on(one.type) for one in machine.processors if task.on is None or one.name in task.on]
    return min((time for time in found if time is not None), default=min(task.time.values()))


def _times(columns: GraphColumns, machine: Machine) -> tuple[tuple[str, ...], NumberArray | None]:
    """Return the types, and each task's time on each; empty if each task's time is the same on all types."""
    types = tuple(dict.fromkeys(processor.type for processor in machine.processors))
    differ = _by_type(columns)
    if all(
        len({task.time_on(name) for name in types}) == 1 and task.time_on(types[0]) is not None
        for task in differ.values()
    ):
        return (), None
    own = columns.time_list()
    every: list[Number] = []
    for name in types:
        row = list(own)
        for k, task in differ.items():
            time = task.time_on(name)
            row[k] = CANNOT if time is None else time
        every += row
    return types, number_array(every).reshape(len(types), len(own))


def _energy(columns: GraphColumns, machine: Machine) -> TaskEnergy | None:
    """Return the energies of tasks, by type if they differ between the machine's processors."""
    differ = {k: task for k, task in columns.whole.items() if isinstance(task.energy, dict)}
    if columns.energy is None and not differ:
        return None
    for task in differ.values():
        _check_energy(task, machine)
    types = tuple(dict.fromkeys(processor.type for processor in machine.processors))
    if all(len({task.energy_on(name) for name in types}) == 1 for task in differ.values()):
        types = ()
    own = [0] * len(columns.tasks) if columns.energy is None else list(columns.energy)
    every: list[Number] = []
    for name in types or (machine.processors[0].type,):
        row = [int(energy) if isinstance(energy, np.integer) else energy for energy in own]
        for k, task in differ.items():
            row[k] = task.energy_on(name)
        every += row
    whole = set(map(type, every)) <= {int}
    return TaskEnergy(types, np.array(every, dtype=np.int64 if whole else np.float64).reshape(-1, len(own)))


def _check_energy(task: Task, machine: Machine) -> None:
    """Reject a machine that has a type of processor for which a task gives a time, but no energy."""
    assert isinstance(task.energy, dict)
    for processor in machine.processors:
        runs = task.on is None or processor.name in task.on
        if runs and processor.type not in task.energy and task.time_on(processor.type) is not None:
            raise OptionError(
                f"task {task.id!r:.60} has no energy on {processor.name!r:.60}, of type {processor.type!r:.60}",
                argument="machine",
            )
