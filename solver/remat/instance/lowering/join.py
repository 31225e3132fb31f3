"""Joins as task graphs: all chains, with one loss for all of them.

Names are those of a chain, with the chain's number (from 1) before the stage's: ``F{j}.{i}``, ``Fe{j}.{i}``,
``B{j}.{i}`` and ``loss``; ``x{j}.{i}``, ``s{j}.{i}``, ``y{j}.{i}``.
For a stage with several variants: ``Fe{j}.{i}.{v}`` and so on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from remat.graph.machine import Machine
from remat.graph.names import NameRun, NumberedNames
from remat.graph.taskgraph import IntArray, Ragged, Resident, TaskGraph, number_array
from remat.instance.lowering.chain import cheapest_tasks, graph_of_chain, ratios_of, with_stage_names
from remat.instance.lowering.chain_arrays import chain_arrays
from remat.units import Number

if TYPE_CHECKING:
    from remat.instance import JoinInstance


def lower_join(instance: JoinInstance, machine: Machine) -> TaskGraph:
    """Lower a `join` instance: all forwards, all saving forwards, the loss, all backwards, each chain by chain."""
    units = instance.units.build()
    chains = [chain_arrays(chain) for chain in instance.each_chain()]
    parts = [graph_of_chain(chain, (Resident(0),), units) for chain in chains]
    lengths = [chain.length for chain in chains]
    losses = [part.task("loss") for part in parts]
    first_task = np.cumsum([0] + [len(part.tasks) for part in parts])
    first_value = np.cumsum([0] + [len(part.values) for part in parts])

    def tasks(begin: list[int], end: list[int]) -> IntArray:
        runs = [np.arange(first + a, first + b) for first, a, b in zip(first_task[:-1], begin, end, strict=True)]
        return np.concatenate(runs).astype(np.int64)

    none = [0] * len(parts)
    before = np.concatenate((tasks(none, lengths), tasks(lengths, losses)))
    after = tasks([loss + 1 for loss in losses], [len(part.tasks) for part in parts])

    def joined(name: str, of_loss: object) -> np.ndarray:
        column = np.concatenate([getattr(part, name) for part in parts])
        return np.concatenate((column[before], np.array([of_loss], dtype=column.dtype), column[after]))

    def rows(name: str) -> Ragged:
        each: list[Ragged] = [getattr(part, name) for part in parts]
        items = [row.items + first for row, first in zip(each, first_value[:-1], strict=True)]
        counts = np.concatenate([row.counts for row in each])
        whole = Ragged(np.concatenate(([0], np.cumsum(counts))), np.concatenate(items))
        of_loss = np.concatenate(
            [row[loss] + first for row, loss, first in zip(each, losses, first_value, strict=False)]
        )
        kept, rest = whole.gather(before), whole.gather(after)
        sizes = np.concatenate((kept.counts, [len(of_loss)], rest.counts))
        return Ragged(np.concatenate(([0], np.cumsum(sizes))), np.concatenate((kept.items, of_loss, rest.items)))

    times = [part.time for part in parts]
    exact = all(time.dtype == np.int64 for time in times) and isinstance(instance.loss.time, int)
    total = sum(int(time.sum()) for time in times) if exact else 0
    column = np.concatenate(times).astype(np.int64 if exact and total + instance.loss.time < 2**62 else np.float64)
    cheapest = None
    if any(chain.variants is not None for chain in chains):
        chosen = np.concatenate([cheapest_tasks(chain) for chain in chains])
        cheapest = np.concatenate((chosen[before], [True], chosen[after]))
    graph = TaskGraph(
        tasks=NumberedNames(_task_names(parts)),
        values=NumberedNames([run for j, part in enumerate(parts, 1) for run in _numbered(_runs(part.values), j)]),
        time=np.concatenate((column[before], number_array([instance.loss.time]).astype(column.dtype), column[after])),
        size=np.concatenate([part.size for part in parts]),
        reads=rows("reads"),
        writes=rows("writes"),
        workspace=joined("workspace", instance.loss.workspace),
        in_place=joined("in_place", instance.in_place),
        required=joined("required", True),
        recomputable=joined("recomputable", True),
        once=joined("once", True),
        inputs=tuple(Resident(int(first)) for first in first_value[:-1]),
        outputs=tuple(
            Resident(int(first) + part.outputs[0].value) for part, first in zip(parts, first_value, strict=False)
        ),
        static_memory=instance.static_memory,
        cheapest=cheapest,
        units=units,
        ratios=_ratios(instance, first_value.tolist()) if any(link.packed for link in machine.links) else {},
    )
    return with_stage_names(graph, [chain.stages for chain in instance.chains], joined=True)


def _ratios(instance: JoinInstance, first_value: list[int]) -> dict[int, Number]:
    """Return the compression ratios of values that have one of their own; `first_value` is that of each chain."""
    chains = zip(instance.each_chain(), first_value, strict=False)
    return {first + value: ratio for chain, first in chains for value, ratio in ratios_of(chain).items()}


def _runs(names: object) -> list[NameRun]:
    assert isinstance(names, NumberedNames)
    return names.runs


def _task_names(parts: list[TaskGraph]) -> list[NameRun]:
    groups: dict[str, list[NameRun]] = {"F": [], "Fe": [], "loss": [("loss", None, 1)], "B": []}
    for j, part in enumerate(parts, 1):
        for run in _runs(part.tasks):
            letters = _letters(run)
            if letters != "loss":
                groups[letters] += _numbered([run], j)
    return [run for group in groups.values() for run in group]


def _numbered(runs: list[NameRun], chain: int) -> list[NameRun]:
    """Insert the number of a chain before those of its stages."""
    return [
        (f"{letters}{chain}.{run[0][len(letters) :]}", run[1], run[2]) for run in runs for letters in [_letters(run)]
    ]


def _letters(run: NameRun) -> str:
    found = re.match("[A-Za-z]+", run[0])
    assert found is not None
    return found[0]
