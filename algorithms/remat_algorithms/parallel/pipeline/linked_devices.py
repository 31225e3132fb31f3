"""Devices in a row with links between neighbours: all of them, or some of a machine that lacks links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from remat.plugin import Context, Machine, PipelineInstance, Problem, Proposal
from remat_algorithms.parallel.pipeline.device_links import are_linked
from remat_algorithms.parallel.pipeline.device_orders import Solve, as_listed, on_device_orders, rearranged

MOST_TRIALS = 10_000
"""Maximum number of rows, complete or not, that are tried for the longest one."""


def on_linked_devices(problem: Problem, context: Context, solve: Solve) -> Proposal:
    """Solve on all devices, in several orders if they differ, or on the longest row of linked ones.

    The latter if some neighbours of the machine lack a link in either direction.

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
    if instance.has_tensor:
        return solve(problem, context)
    if all(are_linked(machine, *pair) for pair in pairwise(row)):
        return on_device_orders(problem, context, solve)
    row = longest_row(machine)
    found = as_listed(solve(rearranged(problem, row), context.aside()), row, len(machine.processors))
    note = f"layers are on {len(row)} of {len(machine.processors)} devices: neighbours need links in both directions"
    return replace(found, notes=(*found.notes, note))


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
