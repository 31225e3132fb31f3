"""Parameters of a chain as values of its task graph.

Stage 7 with parameters has the values w7 (parameters), g7 (their gradient), o7 (optimizer state), nw7 and no7 (both
after the update), and the task U7, the update. F7, Fe7 and B7 also read w7; B7 also writes g7. Values without bytes are
omitted, except g7, which orders the update after the backward.

If d equal ranks train on parts of the batch, the graph is that of one rank, and its collectives have one part:

- A7 reduces g7 over all ranks, and writes r7, which U7 reads, to signal it. From ZeRO stage 2 on, B7 writes a bucket b7
  instead, and A7 reduces it into the rank's share g7. Neighbours whose gradients are reduced together share one of
  these tasks, that of the first stage.
- In stages 1 and 2, U7 writes p7, the rank's share of the new parameters, and P7 gathers nw7 from the shares of all
  ranks.
- In stage 3, w7 and nw7 are shares. P7 gathers f7, any number of times, and F7, Fe7 and B7 read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from remat.graph.machine import Machine, ring_time
from remat.graph.names import NameRun, Names, NumberedNames
from remat.graph.taskgraph import (
    BUCKETS,
    GATHERED,
    GRADIENTS,
    PARAMETERS,
    STATES,
    Part,
    Placeable,
    Ragged,
    Renewal,
    Resident,
    TaskGraph,
    number_array,
)
from remat.instance.data_parallel import ShardingModel
from remat.instance.machine import ANY
from remat.units import Number

if TYPE_CHECKING:
    from remat.instance.chain import ChainInstance, Stage

TERMS = {
    "w": PARAMETERS,
    "nw": PARAMETERS,
    "p": PARAMETERS,
    "g": GRADIENTS,
    "r": GRADIENTS,
    "o": STATES,
    "no": STATES,
    "f": GATHERED,
    "b": BUCKETS,
}

ALONE = ShardingModel.model_construct(data=1)


def with_parameters(graph: TaskGraph, instance: ChainInstance, machine: Machine) -> TaskGraph:
    """Return the task graph of a chain with its parameters, gradients, optimizer states, updates and collectives.

    Parameters
    ----------
    graph : TaskGraph
        Graph of the chain without parameters; its tasks and values keep their indices.
    instance : ChainInstance
    machine : Machine
        Its link from the device to itself, if any, is the link to the other ranks.

    Returns
    -------
    TaskGraph
        O(size of the graph).
    """
    return _Parameters(graph, instance, machine).graph()


@dataclass
class _Tasks:
    """The added tasks, each kind in the order of its stages."""

    names: list[NameRun] = field(default_factory=list[NameRun])
    time: list[Number] = field(default_factory=list[Number])
    reads: list[list[int]] = field(default_factory=list[list[int]])
    writes: list[list[int]] = field(default_factory=list[list[int]])
    updates: list[bool] = field(default_factory=list[bool])  # which run in place
    once: list[bool] = field(default_factory=list[bool])

    def add(
        self, letter: str, number: int, time: Number, reads: list[int], writes: list[int], *, once: bool = True
    ) -> None:
        last = self.names[-1] if self.names else ("", 0, 0)
        if last[0] == letter and number == (last[1] or 0) + last[2]:
            self.names[-1] = (letter, last[1], last[2] + 1)
        else:
            self.names.append((letter, number, 1))
        self.time.append(time)
        self.reads.append(reads)
        self.writes.append(writes)
        self.updates.append(letter == "U")
        self.once.append(once)


class _Parameters:
    def __init__(self, graph: TaskGraph, instance: ChainInstance, machine: Machine) -> None:
        self.before, self.instance = graph, instance
        self.stages = [stage for stage in instance.stages for _ in range(stage.repeat)]
        self.updated = [number for number, stage in enumerate(self.stages, 1) if stage.has_parameters]
        self.sharding = instance.sharding or ALONE
        device = machine.processors[0].memory
        self.device = machine.memories[device].name
        way = machine.link_index.get((device, device))
        self.way = [] if way is None else [machine.links[way]]
        self.sizes = graph.size.tolist()
        self.value_names: list[NameRun] = []
        self.index = self._values()
        self.tasks = _Tasks()
        self.parts: dict[int, tuple[Part, ...]] = {}
        self.moved: dict[int, int] = {}

    def graph(self) -> TaskGraph:
        """Return the graph."""
        reads, writes = self.before.reads.to_lists(), self.before.writes.to_lists()
        workspace = self.before.workspace.copy()
        read = self.index["f" if self.sharding.zero == 3 else "w"]
        made = {**self.index["g"], **self.index["b"]}
        for task, name in enumerate(self.before.tasks):
            kind, number = _kind_and_stage(name)
            if number in read:
                reads[task].append(read[number])
            if number in made and kind == "B":
                writes[task].append(made[number])
                if number not in self.index["b"]:
                    workspace[task] += self.stages[number - 1].bucket_size or 0
        if self.sharding.data > 1:
            self._exchanges()
        for number in self.updated:
            self._update(number)
        if self.sharding.zero:
            self._gathers()
        return self._with(reads, writes, workspace)

    def _values(self) -> dict[str, dict[int, int]]:
        """Add all values; return their indices, by letter and stage."""
        zero, ranks = self.sharding.zero, self.sharding
        columns: dict[str, dict[int, int]] = {letter: {} for letter in ("w", "o", "g", "nw", "no", "b", "f", "p", "r")}
        for number in self.updated:
            stage = self.stages[number - 1]
            gradient, state = stage.parameter_gradient_bytes, stage.optimizer_size
            parameters, share, states = ranks.shares(stage.parameter_size, gradient, state)
            columns["g"][number] = share
            if state:
                columns["o"][number] = columns["no"][number] = states
            if stage.parameter_size:
                columns["w"][number] = columns["nw"][number] = parameters
                if zero == 3:
                    columns["f"][number] = stage.parameter_size
                elif zero:
                    columns["p"][number] = ranks.share(stage.parameter_size)
            if ranks.data > 1 and self._is_exchanged(stage):
                if zero >= 2:
                    columns["b"][number] = stage.bucket_bytes
                else:
                    columns["r"][number] = 0
        index: dict[str, dict[int, int]] = {}
        for letter, column in columns.items():
            index[letter] = dict(zip(column, range(len(self.sizes), len(self.sizes) + len(column)), strict=True))
            self.sizes += column.values()
            self.value_names += _numbered(letter, column)
        return index

    def _is_exchanged(self, stage: Stage) -> bool:
        return stage.parameter_gradient_bytes > 0 or (self.sharding.zero >= 2 and stage.bucket_bytes > 0)

    def _exchanges(self) -> None:
        """Add the tasks that reduce gradients; neighbours are reduced together when they fill a bucket."""
        zero = self.sharding.zero
        source, target = ("b", "g") if zero >= 2 else ("g", "r")
        groups: list[list[int]] = []
        together = self.sharding.bucket
        for number in reversed(self.updated):
            if number not in self.index[{"b": "b", "g": "r"}[source]]:
                continue
            if together >= self.sharding.bucket:
                groups.append([])
                together = 0
            groups[-1].append(number)
            together += self._exchanged_bytes(number)
        for group in reversed(groups):
            size = sum(self._exchanged_bytes(number) for number in group)
            reads = [self.index[source][number] for number in group]
            writes = [self.index[target][number] for number in group]
            self._collective("A", group[-1], size, reads, writes, turns=1 if zero else 2)

    def _exchanged_bytes(self, number: int) -> int:
        stage = self.stages[number - 1]
        return stage.bucket_bytes if self.sharding.zero >= 2 else stage.parameter_gradient_bytes

    def _update(self, number: int) -> None:
        """Add an update: of the rank's share if states are sharded."""
        stage = self.stages[number - 1]
        # If the optimizer state contains the parameters, too, the parameters need not be resident.
        read = "gor" if self.instance.master_copy and number in self.index["o"] else "wgor"
        written = ("p" if number in self.index["p"] else "nw", "no")
        time = stage.update_time
        if self.sharding.zero:
            ranks = self.sharding.data
            time = time // ranks if isinstance(time, int) and time % ranks == 0 else time / ranks
        self.tasks.add(
            "U",
            number,
            time,
            [self.index[letter][number] for letter in read if number in self.index[letter]],
            [self.index[letter][number] for letter in written if number in self.index[letter]],
        )

    def _gathers(self) -> None:
        source, target = ("w", "f") if self.sharding.zero == 3 else ("p", "nw")
        for number, value in self.index[source].items():
            size = self.stages[number - 1].parameter_size
            made = self.index[target][number]
            self._collective("P", number, size, [value], [made], once=self.sharding.zero < 3)

    def _collective(
        self,
        letter: str,
        number: int,
        size: int,
        reads: list[int],
        writes: list[int],
        *,
        turns: int = 1,
        once: bool = True,
    ) -> None:
        task = len(self.before.tasks) + len(self.tasks.time)
        self.tasks.add(
            letter, number, ring_time(self.way, self.sharding.data, size, turns=turns), reads, writes, once=once
        )
        self.parts[task] = (Part(tuple(reads), tuple(writes), self.device),)
        self.moved[task] = turns * self.sharding.sent(size)

    def _with(self, reads: list[list[int]], writes: list[list[int]], workspace: np.ndarray) -> TaskGraph:
        graph, added = self.before, self.tasks
        inputs, outputs, placeable = self._places()
        once = np.array(added.once, dtype=bool)
        yes = np.ones(len(once), dtype=bool)
        return replace(
            graph,
            tasks=NumberedNames([*_runs_of(graph.tasks), *added.names]),
            values=NumberedNames([*_runs_of(graph.values), *self.value_names]),
            time=number_array([*graph.time.tolist(), *added.time]),
            size=np.array(self.sizes, dtype=np.int64),
            reads=Ragged.from_lists(reads + added.reads),
            writes=Ragged.from_lists(writes + added.writes),
            workspace=np.concatenate((workspace, np.zeros(len(once), dtype=np.int64))),
            in_place=np.concatenate((graph.in_place, np.array(added.updates, dtype=bool))),
            required=np.concatenate((graph.required, once)),
            recomputable=np.concatenate((graph.recomputable, yes)),
            once=np.concatenate((graph.once, once)),
            inputs=(*graph.inputs, *inputs),
            outputs=(*graph.outputs, *outputs),
            placeable=placeable,
            renewals=self._renewals(),
            parts=self.parts,
            moved=self.moved,
            terms=TERMS,
            cheapest=None if graph.cheapest is None else np.concatenate((graph.cheapest, yes)),
        )

    def _renewals(self) -> tuple[Renewal, ...]:
        """Return which values a step takes from which earlier step, where steps follow each other without end."""
        late = self.instance.staleness
        if late is None:
            return ()
        return tuple(
            Renewal(value, self.index[f"n{letter}"][number], lag)
            for letter, lag in (("w", 1 + late), ("o", 1))
            for number, value in self.index[letter].items()
        )

    def _places(self) -> tuple[list[Resident], list[Resident], tuple[Placeable, ...]]:
        """Return the resident values at the start and at the end, and the values that the schedule places."""
        inputs: list[Resident] = []
        outputs: list[Resident] = []
        placeable: list[Placeable] = []
        machine = self.instance.machine
        is_open = machine is None or machine.leaves_places_open
        for letter, home in (("w", self.instance.parameter_memory), ("o", self.instance.optimizer_memory)):
            for number, value in self.index[letter].items():
                following = self.index[f"n{letter}"][number]
                if home == ANY and is_open:
                    placeable.append(Placeable(value, successor=following))
                else:
                    inputs.append(Resident(value, home))
                    outputs.append(Resident(following, home))
        return inputs, outputs, tuple(placeable)


def _kind_and_stage(name: str) -> tuple[str, int]:
    """Return the letters and the stage of F7, Fe7.2 or B7; (loss, 0)."""
    kind = name.rstrip("0123456789.")
    return kind, int(name[len(kind) :].partition(".")[0] or 0)


def _runs_of(names: Names) -> list[NameRun]:
    assert isinstance(names, NumberedNames)  # holds for every chain
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
