"""Steps of a traversal under an eviction rule: copies to the disk, copies back, runs."""

from __future__ import annotations

from dataclasses import dataclass

from remat.plugin import WHOLE, IntArray, StepBuilder, Steps, TaskGraph
from remat_algorithms.tree.out_of_core.eviction_rules import Policy


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """A traversal with its evictions.

    Attributes
    ----------
    steps : Steps
        Without start times.
    written : int
        Bytes written to the disk, the I/O volume; the same number returns.
    evictions : int
        Number of copies to the disk.
    disk_peak : int
        Maximum number of bytes on the disk, if steps run one after another.
    disk_task : int or None
        Task whose evictions set that peak.
    """

    steps: Steps
    written: int
    evictions: int
    disk_peak: int
    disk_task: int | None


def use_of_values(graph: TaskGraph, order: IntArray) -> list[int]:
    """Return the position at which each value of a tree is read; the length of the order if no task reads it."""
    position = [0] * len(order)
    for at, task in enumerate(order.tolist()):
        position[task] = at
    use = [len(order)] * len(graph.values)
    for value, task in zip(graph.reads.items.tolist(), graph.reads.rows.tolist(), strict=True):
        use[value] = position[task]
    return use


def plan_evictions(graph: TaskGraph, order: IntArray, policy: Policy, *, capacity: int, disk: int) -> EvictionPlan:
    """Simulate a traversal, evicting as late and as little as the rule allows.

    Before a task runs, its inputs return completely. If the inputs, the outputs and the workspace do not fit, the
    policy chooses the values to evict. Every value is read once, so each evicted byte returns once.

    Parameters
    ----------
    graph : TaskGraph
        Graph of a tree.
    order : (tasks,) int64
        Topological order.
    policy : Policy
        Not used before.
    capacity : int
        Bytes for the tree in the memory (index 0), at least the largest working set of a task.
    disk : int
        Index of the second memory.

    Returns
    -------
    EvictionPlan
        Ignores the capacity of the disk.
    """
    reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
    size, workspace = graph.size.tolist(), graph.workspace.tolist()
    away = [0] * len(size)
    steps = StepBuilder()
    written = evictions = on_disk = disk_peak = 0
    disk_task = None
    used = 0
    for place in graph.inputs:
        used += size[place.value]
        if size[place.value]:
            policy.add(place.value)
    for task in order.tolist():
        inputs, outputs = reads[task], writes[task]
        missing = freed = made = 0
        for value in inputs:
            missing += away[value]
            freed += size[value]
            if size[value]:
                policy.remove(value)
        for value in outputs:
            made += size[value]
        need = used + missing + made + workspace[task] - capacity
        if need > 0:
            for value, amount in policy.choose(need):
                steps.copy(value, 0, disk, drop=True, amount=WHOLE if amount == size[value] else amount)
                away[value] += amount
                used -= amount
                on_disk += amount
                written += amount
                evictions += 1
            if on_disk > disk_peak:
                disk_peak, disk_task = on_disk, task
        if missing:
            for value in inputs:
                if away[value]:
                    back = away[value]
                    steps.copy(value, disk, 0, drop=True, amount=WHOLE if back == size[value] else back)
            used += missing
            on_disk -= missing
        steps.run(task, drop=inputs)
        used += made - freed
        for value in outputs:
            if size[value]:
                policy.add(value)
    return EvictionPlan(steps.build(), written, evictions, disk_peak, disk_task)
