"""Tasks and values of a graph as columns, for documents with a hundred thousand tasks.

`GraphColumns` contains the arrays that lowering needs, with names as indices. `Tasks` and `Values` present the columns
as models, each created on demand. `remat.instance.column_parser` converts documents to columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import repeat
from json.encoder import encode_basestring
from typing import Any, TypeVar, overload

import numpy as np

from remat.graph.names import Names
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, Ragged, number_array
from remat.instance.fast_validation import filled
from remat.instance.fields import Model
from remat.instance.tasks import Origin, Task, Value
from remat.units import Number

M = TypeVar("M", bound=Model)

TOGETHER = 10_000
"""Number of entries that are written together."""

FLAGS = ("in_place", "required", "recomputable", "once")
OPTIONAL = ("reads", "writes", "size", "workspace", *FLAGS, "phase", "origin", "energy")
"""Optional keys of tasks that have columns, in addition to `id` and `time`; tasks with other keys stay models."""


@dataclass(frozen=True, eq=False)
class GraphColumns:
    """A valid graph of tasks and values: names are unique and known, and each task can run.

    Attributes
    ----------
    tasks, values : Names
        The listed values come first, then those that tasks declare, in the order of the tasks.
    time : tuple of numbers, or (tasks,) int64
        Time of one run of each task; 0 if the time depends on the type of the processor.
    size : (values,) int64
    reads, writes : Ragged
        In the listed order; for a collective, all values that its parts read and write, each once.
    declares : (tasks,) bool
        Which tasks give a size and write one value named after themselves.
    workspace : (tasks,) int64
    in_place, required, recomputable, once : (tasks,) bool
    phase : tuple of str, or None
    energy : tuple of numbers, (tasks,) int64, or None
        Energy of one run of each task; 0 if it depends on the type of the processor. None: all are 0.
    origin : tuple of (module, op, source), or None
        None for each text that is missing.
    given : (tasks,) int64
        The optional keys that a task has: bit k stands for ``OPTIONAL[k]``.
    whole : mapping of int to Task
        Tasks with fields that have no column.
    listed : int
        Number of values that are listed, without those that tasks declare.
    shown : mapping of int to Value
        Listed values with more fields than name and size.
    """

    tasks: Names
    values: Names
    time: tuple[Number, ...] | IntArray
    size: IntArray
    reads: Ragged
    writes: Ragged
    declares: BoolArray
    workspace: IntArray
    in_place: BoolArray
    required: BoolArray
    recomputable: BoolArray
    once: BoolArray
    given: IntArray
    listed: int
    phase: tuple[str, ...] | None = None
    energy: tuple[Number, ...] | IntArray | None = None
    origin: tuple[tuple[str | None, str | None, str | None] | None, ...] | None = None
    whole: Mapping[int, Task] = field(default_factory=dict)
    shown: Mapping[int, Value] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Exact sum of all sizes and workspaces."""
        columns = (self.size, self.workspace)
        if sum(float(column.astype(np.float64).sum()) for column in columns) < 2.0**62:
            return sum(int(column.sum()) for column in columns)
        return sum(sum(column.tolist()) for column in columns)

    def time_list(self, rows: slice = slice(None)) -> Sequence[Number]:
        """Return the times of some tasks as Python numbers."""
        some = self.time[rows]
        return some.tolist() if isinstance(some, np.ndarray) else some

    @property
    def with_energy(self) -> list[int]:
        """The tasks that give an energy."""
        found: list[int] = np.flatnonzero(self.given >> OPTIONAL.index("energy") & 1).tolist()
        return found

    @cached_property
    def times(self) -> NumberArray:
        """The tasks' times as an array; integers stay integers if their sums fit (see `number_array`)."""
        if isinstance(self.time, np.ndarray) and self.time.sum(dtype=np.float64) < 2.0**61:
            return self.time
        return number_array(self.time_list())


class View(Sequence[M]):
    """A sequence of models, each created on demand."""

    def __init__(self, columns: GraphColumns) -> None:
        self.columns = columns

    def _one(self, index: int) -> M:
        raise NotImplementedError

    def canonical(self, text: Callable[[Any], str], time_text: Callable[[Number], str]) -> Iterator[list[str]]:
        """Yield the entries as canonical JSON (see `remat.instance.digest`), without the fields for readers.

        `text` writes a parsed entry, `time_text` a time.
        """
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[M, ...]: ...
    def __getitem__(self, index: int | slice) -> M | tuple[M, ...]:
        if isinstance(index, slice):
            return tuple(self._one(k) for k in range(*index.indices(len(self))))
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._one(index)

    def __iter__(self) -> Iterator[M]:
        return map(self._one, range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Whether the models are equal to those of another view or of a tuple."""
        if not isinstance(other, (tuple, View)):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Tasks(View["Task"]):
    """The tasks of a graph."""

    def __len__(self) -> int:
        return len(self.columns.tasks)

    def _one(self, index: int) -> Task:
        own, task = self.columns, self.columns.whole.get(index)
        if task is not None:
            return task
        values = _defaults(Task).copy()
        given = _given(int(own.given[index]))
        values["id"] = own.tasks[index]
        time = own.time[index]
        values["time"] = time.item() if isinstance(time, np.generic) else time
        if own.energy is not None:
            energy = own.energy[index]
            values["energy"] = energy.item() if isinstance(energy, np.generic) else energy
        values["reads"] = tuple(own.values[value] for value in own.reads[index].tolist())
        if own.declares[index]:
            values["size"] = int(own.size[own.writes[index][0]])
        else:
            values["writes"] = tuple(own.values[value] for value in own.writes[index].tolist())
        values["workspace"] = int(own.workspace[index])
        for flag in FLAGS:
            values[flag] = bool(getattr(own, flag)[index])
        if own.phase is not None:
            values["phase"] = own.phase[index]
        if own.origin is not None and (texts := own.origin[index]) is not None:
            values["origin"] = _origin(texts)
        return filled(Task, values, given)

    def canonical(self, text: Callable[[Any], str], time_text: Callable[[Number], str]) -> Iterator[list[str]]:
        """Yield each task as canonical JSON, several thousand at a time: see `View.canonical`."""
        own = self.columns
        names, values = _quoted(own.tasks), _quoted(own.values)
        size, workspace = own.size.tolist(), own.workspace.tolist()
        rare = own.in_place | ~own.required | ~own.recomputable | own.once
        rare[[*own.whole, *own.with_energy]] = True
        for begin in range(0, len(self), TOGETHER):
            rows = slice(begin, begin + TOGETHER)
            entries = []
            columns = zip(
                names[rows],
                own.time_list(rows),
                _rows(own.reads, rows),
                _rows(own.writes, rows),
                own.declares[rows].tolist(),
                workspace[rows],
                rare[rows].tolist(),
                own.phase[rows] if own.phase is not None else repeat(""),
                strict=False,
            )
            for index, (name, time, read, written, declares, works, is_rare, phase) in enumerate(columns, begin):
                if is_rare:
                    entries.append(text(_plain(self._one(index))))
                    continue
                reads = f',"reads":[{",".join([values[value] for value in read])}]' if read else ""
                said = f',"phase":{encode_basestring(phase)}' if phase else ""
                used = f',"workspace":{works}' if works else ""
                if declares:
                    made, listed = f',"size":{size[written[0]]}', ""
                else:
                    made, listed = "", f',"writes":[{",".join([values[value] for value in written])}]'
                entries.append(f'{{"id":{name}{said}{reads}{made},"time":{time_text(time)}{used}{listed}}}')
            yield entries


class Values(View["Value"]):
    """The listed values of a graph."""

    def __len__(self) -> int:
        return self.columns.listed

    def _one(self, index: int) -> Value:
        value = self.columns.shown.get(index)
        if value is not None:
            return value
        fields = {"id": self.columns.values[index], "size": int(self.columns.size[index])}
        return filled(Value, _defaults(Value) | fields, _OF_VALUES)

    def canonical(self, text: Callable[[Any], str], time_text: Callable[[Number], str]) -> Iterator[list[str]]:
        """Yield each value as canonical JSON, several thousand at a time: see `View.canonical`."""
        shown = [(index, value) for index, value in self.columns.shown.items() if value.ratio is not None]
        for begin in range(0, len(self), TOGETHER):
            rows = slice(begin, min(begin + TOGETHER, len(self)))
            sizes = self.columns.size[rows].tolist()
            names = map(encode_basestring, self.columns.values[rows])
            entries = [f'{{"id":{name},"size":{size}}}' for name, size in zip(names, sizes, strict=True)]
            for index, value in shown:
                if rows.start <= index < rows.stop:
                    entries[index - rows.start] = text(value.model_dump(include={"id", "size", "ratio"}))
            yield entries


def _quoted(names: Names) -> list[str]:
    return [encode_basestring(name) for name in names]


def _rows(ragged: Ragged, rows: slice) -> list[list[int]]:
    """Return some rows as lists."""
    start = ragged.start[rows.start : rows.stop + 1]
    return Ragged(start - start[0], ragged.items[start[0] : start[-1]]).to_lists()


def _plain(task: Task) -> dict[str, Any]:
    """Return a task without defaults and without the fields for readers."""
    entry = task.model_dump(mode="python", by_alias=True, exclude_defaults=True, exclude={"origin"})
    if "on" in entry:
        entry["on"] = sorted(entry["on"])
    return entry


_OF_VALUES = {"id", "size"}


@cache
def _defaults(model: type[Model]) -> dict[str, Any]:
    return {key: one.default for key, one in model.model_fields.items()}


@cache
def _given(bits: int) -> set[str]:
    """Return the keys of a task; tasks with equal keys share one set."""
    return {"id", "time", *(key for k, key in enumerate(OPTIONAL) if bits >> k & 1)}


def _origin(texts: tuple[str | None, ...]) -> Any:
    given = {key: text for key, text in zip(("module", "op", "source"), texts, strict=True) if text is not None}
    return filled(Origin, _defaults(Origin) | given, set(given))


def given_energies(energies: Sequence[Number] | IntArray) -> IntArray:
    """Return the bits of `GraphColumns.given` of tasks with an energy other than 0."""
    return np.array([energy != 0 for energy in energies], dtype=np.int64) << OPTIONAL.index("energy")


def energies_of(tasks: Sequence[Task]) -> tuple[Number, ...] | None:
    """Return the column of the tasks' energies."""
    found = tuple(0 if isinstance(task.energy, dict) else task.energy for task in tasks)
    return found if any(found) else None


def columns_of(values: Sequence[Value], tasks: Sequence[Task]) -> GraphColumns:
    """Return the columns of valid models."""
    sizes = {value.id: value.size for value in values}
    sizes |= {task.id: task.size for task in tasks if task.size is not None}
    index = {name: k for k, name in enumerate(sizes)}

    def flags(key: str) -> BoolArray:
        return np.array([getattr(task, key) for task in tasks], dtype=bool)

    more = {"parallel", "on", "parts", "busy"}
    shown = {k: value for k, value in enumerate(values) if value.ratio is not None}
    return GraphColumns(
        tasks=Names(task.id for task in tasks),
        values=Names.indexed(index),
        time=tuple(0 if isinstance(task.time, dict) else task.time for task in tasks),
        energy=energies_of(tasks),
        size=np.array(list(sizes.values()), dtype=np.int64),
        reads=Ragged.from_lists([[index[name] for name in task.read] for task in tasks]),
        writes=Ragged.from_lists([[index[name] for name in task.written] for task in tasks]),
        declares=np.array([task.size is not None for task in tasks], dtype=bool),
        workspace=np.array([task.workspace for task in tasks], dtype=np.int64),
        in_place=flags("in_place"),
        required=flags("required"),
        recomputable=flags("recomputable"),
        once=flags("once"),
        given=np.zeros(len(tasks), dtype=np.int64),
        listed=len(values),
        shown=shown,
        phase=tuple(task.phase for task in tasks),
        origin=tuple((task.origin.module, None, None) for task in tasks),
        whole={
            k: task
            for k, task in enumerate(tasks)
            if isinstance(task.time, dict)
            or isinstance(task.energy, dict)
            or not more.isdisjoint(task.model_fields_set)
        },
    )
