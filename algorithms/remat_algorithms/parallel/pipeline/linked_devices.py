"""Devices in a row with links between neighbours, for machines that lack links."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from remat.plugin import Context, Machine, Orders, Pass, PipelineInstance, Problem, Proposal, Ragged, Steps
from remat_algorithms.parallel.pipeline.device_links import are_linked

MOST_TRIALS = 10_000
"""Maximum number of rows, complete or not, that are tried for the longest one."""


def on_linked_devices(problem: Problem, context: Context, solve: Callable[[Problem, Context], Proposal]) -> Proposal:
    """Solve on the longest row of linked devices, if some neighbours of the machine lack a link in either direction.

    Parameters
    ----------
    problem : Problem
        A pipeline that runs once.
    context : Context
    solve : callable
        Solves a problem whose devices are in a row.

    Returns
    -------
    Proposal
        Without bounds if only some devices are used: they do not hold for all.
    """
    instance, machine = problem.instance, problem.machine
    assert isinstance(instance, PipelineInstance)
    row = list(range(len(machine.processors)))
    # Groups of devices that run a layer together are neighbours in the machine's own order.
    if instance.has_tensor or all(are_linked(machine, *pair) for pair in pairwise(row)):
        return solve(problem, context)
    row = longest_row(machine)
    entries = [machine.processors[device] for device in row]
    listed = [{"name": entry.name, "type": entry.type} for entry in entries]
    cluster = type(instance.cluster).model_validate(
        instance.cluster.model_dump(exclude={"devices", "levels"}, exclude_unset=True) | {"devices": listed}
    )
    part = Problem(instance.model_copy(update={"cluster": cluster}), replace(machine, processors=tuple(entries)))
    found = solve(part, context.aside())
    note = f"layers are on {len(row)} of {len(machine.processors)} devices: neighbours need links in both directions"
    return replace(
        found,
        orders=None if found.orders is None else _orders(found.orders, row, len(machine.processors)),
        steps=None if found.steps is None else _steps(found.steps, row),
        bounds=(),
        optimal_within=None,
        infeasible_within=None,
        notes=(*found.notes, note),
    )


def longest_row(machine: Machine) -> list[int]:
    """Return the longest row of devices with links between neighbours that is found; the first one of several."""
    return max(linked_rows(machine, range(len(machine.processors))), key=len)


def linked_rows(machine: Machine, devices: Sequence[int], *, until_all: bool = True) -> Iterator[list[int]]:
    """Yield rows of some of these devices with links between neighbours; of many, the first `MOST_TRIALS`.

    With `until_all`, no row follows one of all devices.
    """
    after = {
        device: [other for other in devices if other != device and are_linked(machine, device, other)]
        for device in devices
    }
    row: list[int] = []
    left = [list(devices)]
    for _ in range(MOST_TRIALS):
        while left and not left[-1]:
            left.pop()
            if row:
                row.pop()
        if not left:
            return
        row.append(left[-1].pop(0))
        yield list(row)
        if until_all and len(row) == len(devices):
            return
        left.append([device for device in after[row[-1]] if device not in row])


def _orders(found: Orders, row: list[int], count: int) -> Orders:
    stages = tuple(replace(stage, device=row[stage.device]) for stage in found.stages)
    lists: list[tuple[Pass, ...]] = [()] * count
    paired = [frozenset[int]()] * count
    for place, device in enumerate(row):
        lists[device] = found.lists[place]
        if found.paired:
            paired[device] = found.paired[place]
    return replace(found, stages=stages, lists=tuple(lists), paired=tuple(paired) if found.paired else ())


def _steps(found: Steps, row: list[int]) -> Steps:
    on = found.on
    return found if on is None else replace(found, on=Ragged(on.start, np.array(row, dtype=np.int64)[on.items]))
