"""Task-graph instances: names become indices."""

from __future__ import annotations

import numpy as np

from remat.graph.names import Names
from remat.graph.taskgraph import Ragged, Resident, TaskGraph, number_array
from remat.instance import DagInstance
from remat.instance.dag import NOWHERE


def lower_dag(instance: DagInstance) -> TaskGraph:
    """Lower a `dag` instance; values come in the listed order, then those declared by a task's `size`."""
    sizes = {value.id: value.size for value in instance.values}
    for task in instance.tasks:
        if task.size is not None:
            sizes[task.id] = task.size
    index = {name: i for i, name in enumerate(sizes)}
    tasks = instance.tasks
    parallel = [task.parallel for task in tasks]
    some_parallel = any(parallel)
    annotated = any(task.origin is not NOWHERE and task.origin.module for task in tasks)
    return TaskGraph(
        tasks=Names(task.id for task in tasks),
        values=Names(sizes),
        time=number_array(task.time for task in tasks),
        size=np.array(list(sizes.values()), dtype=np.int64),
        reads=Ragged.from_lists([[index[name] for name in task.reads] for task in tasks]),
        writes=Ragged.from_lists([[index[name] for name in task.written] for task in tasks]),
        workspace=np.array([task.workspace for task in tasks], dtype=np.int64),
        in_place=np.array([task.in_place for task in tasks], dtype=bool),
        required=np.array([task.required for task in tasks], dtype=bool),
        recomputable=np.array([task.recomputable for task in tasks], dtype=bool),
        once=np.array([task.once for task in tasks], dtype=bool),
        inputs=tuple(Resident(index[place.value], place.memory) for place in instance.inputs),
        outputs=tuple(Resident(index[place.value], place.memory) for place in instance.outputs),
        pinned=frozenset(index[name] for name in instance.pinned_inputs),
        static_memory=instance.static_memory,
        parallel_max=np.array([p.max if p else 1 for p in parallel], dtype=np.int64) if some_parallel else None,
        parallel_alpha=np.array([p.alpha if p else 1.0 for p in parallel]) if some_parallel else None,
        phase=tuple(task.phase for task in tasks) if any(task.phase for task in tasks) else None,
        modules=tuple(task.origin.module for task in tasks) if annotated else None,
        units=instance.units.build(),
    )
