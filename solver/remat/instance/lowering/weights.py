"""Parameters of a chain as values of its task graph.

Stage 7 with parameters has the values w7 (parameters), g7 (their gradient), o7 (optimizer state), nw7 and no7 (both
after the update), and the task U7, the update. F7, Fe7 and B7 also read w7, B7 also writes g7. What has no bytes is
left out, but for g7, which orders the update after the backward.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from remat.graph.names import NameRun, Names, NumberedNames
from remat.graph.taskgraph import Ragged, Resident, TaskGraph, number_array

if TYPE_CHECKING:
    from remat.instance.chain import ChainInstance


def with_parameters(graph: TaskGraph, instance: ChainInstance) -> TaskGraph:
    """Return the task graph of a chain with its parameters, gradients, optimizer states and updates.

    Parameters
    ----------
    graph : TaskGraph
        Of the chain without them; its own tasks and values keep their indices.
    instance : ChainInstance

    Returns
    -------
    TaskGraph
        O(size of the graph).
    """
    stages = [stage for stage in instance.stages for _ in range(stage.repeat)]
    updated = [number for number, stage in enumerate(stages, 1) if stage.has_parameters]
    parameters = {number: stages[number - 1].parameter_size for number in updated}
    optimizer = {number: stages[number - 1].optimizer_size for number in updated}
    gradient = {number: stages[number - 1].parameter_gradient_bytes for number in updated}
    columns = {"w": parameters, "o": optimizer, "g": gradient, "nw": parameters, "no": optimizer}
    sizes = graph.size.tolist()
    index: dict[str, dict[int, int]] = {}
    for name, column in columns.items():
        kept = {number: size for number, size in column.items() if size or name == "g"}
        index[name] = dict(zip(kept, range(len(sizes), len(sizes) + len(kept)), strict=True))
        sizes += kept.values()

    reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
    for task, name in enumerate(graph.tasks):
        kind, number = _kind_and_stage(name)
        if number in index["w"]:
            reads[task].append(index["w"][number])
        if number in index["g"] and kind == "B":
            writes[task].append(index["g"][number])
    for number in updated:
        # Where the optimizer's state holds the parameters, too, they need not be there.
        read = "go" if instance.master_copy and number in index["o"] else "wgo"
        reads.append([index[name][number] for name in read if number in index[name]])
        writes.append([index[name][number] for name in ("nw", "no") if number in index[name]])
    homes = {"w": instance.parameter_memory, "o": instance.optimizer_memory}
    yes = np.ones(len(updated), dtype=bool)
    return replace(
        graph,
        tasks=NumberedNames([*_runs_of(graph.tasks), *_numbered("U", updated)]),
        values=NumberedNames(
            [*_runs_of(graph.values), *(run for name in columns for run in _numbered(name, index[name]))]
        ),
        time=number_array([*graph.time.tolist(), *(stages[number - 1].update_time for number in updated)]),
        size=np.array(sizes, dtype=np.int64),
        reads=Ragged.from_lists(reads),
        writes=Ragged.from_lists(writes),
        workspace=np.concatenate((graph.workspace, np.zeros(len(updated), dtype=np.int64))),
        in_place=np.concatenate((graph.in_place, yes)),
        required=np.concatenate((graph.required, yes)),
        recomputable=np.concatenate((graph.recomputable, yes)),
        once=np.concatenate((graph.once, yes)),
        inputs=(*graph.inputs, *(Resident(v, homes[name]) for name in homes for v in index[name].values())),
        outputs=(*graph.outputs, *(Resident(v, homes[name]) for name in homes for v in index[f"n{name}"].values())),
        cheapest=None if graph.cheapest is None else np.concatenate((graph.cheapest, yes)),
    )


def _kind_and_stage(name: str) -> tuple[str, int]:
    """Return the letters and the stage of F7, Fe7.2 or B7; (loss, 0)."""
    kind = name.rstrip("0123456789.")
    return kind, int(name[len(kind) :].partition(".")[0] or 0)


def _runs_of(names: Names) -> list[NameRun]:
    assert isinstance(names, NumberedNames)  # of every chain
    return names.runs


def _numbered(prefix: str, numbers: Iterable[int]) -> list[NameRun]:
    """Return ascending numbers as runs of names."""
    runs: list[NameRun] = []
    for number in numbers:
        last = runs[-1] if runs else ("", 0, 0)
        if runs and number == (last[1] or 0) + last[2]:
            runs[-1] = (prefix, last[1], last[2] + 1)
        else:
            runs.append((prefix, number, 1))
    return runs
