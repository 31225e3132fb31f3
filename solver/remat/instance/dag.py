"""Kind `dag`: a task graph, with tasks and values listed separately."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from remat.instance.base import BaseInstance, check_in_memory_names
from remat.instance.column_parser import can_all_run, graph_columns
from remat.instance.columns import GraphColumns, Tasks, Values, columns_of
from remat.instance.fields import (
    LARGEST_COUNT,
    Count,
    LazySchema,
    Many,
    Model,
    Name,
    check_total,
    fail,
)
from remat.instance.machine import ANY, MachineModel
from remat.instance.streaming import check_reachable, check_stream
from remat.instance.tasks import Names, Task, Value
from remat.messages import elided, listing
from remat.units import Number


def _place(value: object) -> Any:
    return {"value": value} if isinstance(value, str) else value


class Residency(Model):
    """A value and its memory (null: the working memory)."""

    since_3 = frozenset(["copies"])
    value: Name = Field(description="Name of the value.")
    memory: Name | None = Field(
        default=None,
        description="Name of the memory; null: the working memory; `any` (remat.instance/3): the schedule's "
        "`initial` chooses, and the value stays there.",
    )
    copies: Count = Field(
        default=1, description="Maximum number of memories that hold an input of memory `any` (remat.instance/3)."
    )

    def newer_keys(self, schema: int) -> frozenset[str]:
        """The memory `any` also needs `remat.instance/3`."""
        anywhere = frozenset(["memory"]) if schema == 3 and self.memory == ANY else frozenset[str]()
        return super().newer_keys(schema) | anywhere


Place = Annotated[
    Residency,
    BeforeValidator(_place),
    LazySchema(lambda: {"anyOf": [{"type": "string"}, Residency.model_json_schema()]}),
]


def _as_models(listed: Any, handler: SerializerFunctionWrapHandler) -> Any:
    return handler(tuple(listed))


class DagInstance(BaseInstance):
    """Tasks and the values that they read and write; the listed order is the reference order."""

    # Both lists may be views of columns (`remat.instance.columns`).

    since_3 = frozenset(["stream"])
    annotations = MappingProxyType({"values": ("shape", "dtype"), "tasks": ("origin",)})
    kind: Literal["dag"] = Field(default="dag", description="Kind of the instance.")
    values: Annotated[tuple[Value, ...], Many, WrapSerializer(_as_models)] = Field(
        default=(), description="Values, except those that a task declares by `size`."
    )
    tasks: Annotated[
        tuple[Task, ...],
        Field(
            min_length=1,
            max_length=LARGEST_COUNT,
            description="Tasks; their order is the reference order, if it is topological.",
        ),
        Many,
        WrapSerializer(_as_models),
    ]
    inputs: Annotated[tuple[Place, ...], Many] = Field(
        default=(),
        description="Values resident at the start; once freed, they return only if a task writes them.",
    )
    pinned_inputs: Names = Field(default=(), description="Inputs that may not be freed.")
    outputs: Annotated[tuple[Place, ...], Many] = Field(
        default=(), description="Values that must be resident at the end."
    )
    stream: Count | None = Field(
        default=None,
        description="Number of samples of an endless stream that the verifier checks step by step; null: all "
        "tasks run for one sample (remat.instance/3).",
    )

    @property
    def staying(self) -> frozenset[str]:
        """Inputs that never move: pinned inputs, and inputs that the schedule places."""
        placed = {place.value for place in self.inputs if place.memory == ANY} if self.is_placeable else set[str]()
        return frozenset(placed.union(self.pinned_inputs))

    @property
    def named_memories(self) -> frozenset[str]:
        """The named memories of inputs, outputs and parts of collectives."""
        tasks = self.tasks if self.columns is None else self.columns.whole.values()
        named = {place.memory for place in (*self.inputs, *self.outputs)}
        named.update(part.memory for task in tasks for part in task.parts or ())
        return frozenset(memory for memory in named if memory is not None)

    @property
    def compression_ratios(self) -> Iterable[Number]:
        """The compression ratios of values that have one of their own."""
        values = self.values if self.columns is None else self.columns.shown.values()
        return [value.ratio for value in values if value.ratio is not None]

    @property
    def is_stream(self) -> bool:
        """Whether the tasks run for a stream of samples without end."""
        return self.stream is not None

    @property
    def samples_seen(self) -> int | None:
        """Number of samples of a stream that are examined step by step."""
        return self.stream

    @classmethod
    def read_lists(cls, document: dict[str, Any]) -> dict[str, Any]:
        """Return tasks and values as views of columns, which builders have already created."""
        if isinstance(document["tasks"], Tasks):
            return {"tasks": document["tasks"], "values": document["values"]}
        columns = graph_columns(document.get("values", []), document["tasks"])
        return {"tasks": Tasks(columns), "values": Values(columns)}

    @property
    def columns(self) -> GraphColumns | None:
        """The columns of tasks and values; None if they are models."""
        return self.tasks.columns if isinstance(self.tasks, Tasks) else None

    def in_columns(self) -> GraphColumns:
        """Return tasks and values as columns, converted if necessary."""
        return columns_of(self.values, self.tasks) if self.columns is None else self.columns

    @property
    def is_placeable(self) -> bool:
        """Whether `any` means that the schedule chooses: true if no memory has that name."""
        return (self.machine or MachineModel()).leaves_places_open

    def parts_with_newer_fields(self) -> Iterator[tuple[Model, str]]:
        """Yield the instance, and the parts of its machine, places, values and tasks that have newer fields."""
        yield from super().parts_with_newer_fields()
        for key, places in (("inputs", self.inputs), ("outputs", self.outputs)):
            for index, place in enumerate(places):
                if (place.memory == ANY and self.is_placeable) or "copies" in place.model_fields_set:
                    yield place, f".{key}[{index}]"
        for index, task in self._tasks_that_say_more():
            if type(task.time) is dict and task.model_fields_set.isdisjoint(task.since_3):
                yield task, f".tasks[{index}]"
        for index, value in enumerate(self.values) if self.columns is None else sorted(self.columns.shown.items()):
            if not value.since_3.isdisjoint(value.model_fields_set):
                yield value, f".values[{index}]"
        for index, task in self._tasks_that_say_more():
            if not task.since_3.isdisjoint(task.model_fields_set):
                yield task, f".tasks[{index}]"

    def _tasks_that_say_more(self) -> Iterator[tuple[int, Task]]:
        """Yield all tasks, or those with fields that have no column or are for readers."""
        own = self.columns
        if own is None:
            yield from enumerate(self.tasks)
            return
        described = [] if own.origin is None else [k for k, origin in enumerate(own.origin) if origin is not None]
        for index in sorted({*own.whole, *described, *own.with_energy}):
            yield index, self.tasks[index]

    @model_validator(mode="after")
    def _references(self) -> Self:
        if self.columns is None:
            self._check_references()
        else:
            self._check_columns(self.columns)
        self._check_devices()
        if self.stream is not None:
            ends = [place.value for place in self.inputs], [place.value for place in self.outputs]
            check_stream(self.tasks, self.values, ends, self.staying, self.stream)
            check_reachable(self.machine or MachineModel(), ".machine.links")
        return self

    def _check_columns(self, columns: GraphColumns) -> None:
        """Check the columns against the rest of the instance; on failure, the models report the details."""
        sizes = columns.values.positions
        for index, task in columns.whole.items():
            if task.parts is not None:
                self._check_parts(task, f".tasks[{index}]", sizes)
        inputs = self._check_places(self.inputs, "inputs", sizes)
        self._check_places(self.outputs, "outputs", sizes)
        _check_names(self.pinned_inputs, inputs, ".pinned_inputs", "is not an input")
        if not can_all_run(columns, [sizes[name] for name in inputs]):
            raise fail("some task can never run, or some value is never written", ".tasks")
        check_total(self.static_memory + columns.total, "the sizes of the graph")

    def _check_devices(self) -> None:
        """Reject tasks that no processor of the instance's machine can run."""
        types: dict[str, str] | None = None
        for index, task in enumerate(self.tasks) if self.columns is None else sorted(self.columns.whole.items()):
            at = f".tasks[{index}]"
            if task.busy and task.parts is None:
                raise fail("only a collective, which has parts, is busy or not", f"{at}.busy")
            by_type = type(task.energy) is dict
            if task.on is None and type(task.time) is not dict and not by_type:
                continue
            types = (self.machine or MachineModel()).types if types is None else types
            for place, name in enumerate(task.on or ()):
                if name not in types:
                    raise fail(f"unknown processor {name!r}; the machine has {listing(types)}", f"{at}.on[{place}]")
            if len(set(task.on or ())) < len(task.on or ()):
                raise fail("a processor is listed twice", f"{at}.on")
            if type(task.time) is dict and task.parallel is not None:
                raise fail("a task with times by type runs on one processor", f"{at}.parallel")
            if all(task.time_on(types[name]) is None for name in task.on or types):
                where = "of those it is tied to" if task.on else "of the machine"
                raise fail(f"no processor {where} is of a type that has a time", f"{at}.time")
            if by_type:
                _check_energies(task, {types[name]: name for name in task.on or types}, at)

    def _check_references(self) -> None:
        sizes = self._declared()
        written: set[str] = set()
        for index, task in enumerate(self.tasks):
            reads, makes = task.reads, task.writes
            if task.parts is not None:
                self._check_parts(task, f".tasks[{index}]", sizes)
                written.update(task.written)
                continue
            if (task.size is None) == (makes is None):
                raise fail("give either size (the task writes one value of its name) or writes", f".tasks[{index}]")
            if reads:
                _check_names(reads, sizes, f".tasks[{index}].reads")
            if makes is None:  # declared by the task
                written.add(task.id)
            else:
                _check_names(makes, sizes, f".tasks[{index}].writes")
                written.update(makes)
            if not task.required and task.once:
                raise fail("a task that runs exactly once is required", f".tasks[{index}].once")
        inputs = self._check_places(self.inputs, "inputs", sizes)
        self._check_places(self.outputs, "outputs", sizes)
        _check_names(self.pinned_inputs, inputs, ".pinned_inputs", "is not an input")
        for name in sizes:
            if name not in written and name not in inputs:
                raise fail(f"value {name!r} is neither an input nor written by a task", ".values")
        workspaces = sum(task.workspace for task in self.tasks)
        check_total(self.static_memory + sum(sizes.values()) + workspaces, "the sizes of the graph")
        check_acyclic(self.tasks, inputs)

    def _check_parts(self, task: Task, at: str, sizes: dict[str, int]) -> None:
        """Reject inconsistent collectives."""
        assert task.parts is not None
        if task.reads or task.writes is not None or task.size is not None:
            raise fail("the parts of a collective list its reads and writes, so the task must not", at)
        if task.in_place or task.parallel is not None or type(task.time) is dict:
            key = "in_place" if task.in_place else "parallel" if task.parallel is not None else "time"
            raise fail("a collective has one time, and is not in place or parallel", f"{at}.{key}")
        if not task.required and task.once:
            raise fail("a task that runs exactly once is required", f"{at}.once")
        fixed = [part.memory for part in task.parts if part.memory is not None]
        check_in_memory_names(list(fixed), self.machine, f"{at}.parts")
        memories = len((self.machine or MachineModel()).memories)
        if len(task.parts) > memories:
            raise fail(f"{len(task.parts)} parts need as many memories, and the machine has {memories}", at)
        if len(set(fixed)) < len(fixed):
            raise fail("two parts are in one memory", f"{at}.parts")
        if task.on is not None and len(task.on) < len(task.parts):
            raise fail(f"{len(task.parts)} parts, and it is tied to {len(task.on)} processors", f"{at}.on")
        for number, part in enumerate(task.parts):
            _check_names(part.reads, sizes, f"{at}.parts[{number}].reads")
            _check_names(part.writes, sizes, f"{at}.parts[{number}].writes")

    def _declared(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for index, value in enumerate(self.values):
            if value.id in sizes:
                raise fail(f"a second value is called {value.id!r}", f".values[{index}].id")
            sizes[value.id] = value.size
        seen: set[str] = set()
        for index, task in enumerate(self.tasks):
            if task.id in seen:
                raise fail(f"a second task is called {task.id!r}", f".tasks[{index}].id")
            seen.add(task.id)
            if task.size is not None and task.writes is None:
                if task.id in sizes:
                    raise fail(f"a value is already called {task.id!r}; use writes", f".tasks[{index}].size")
                sizes[task.id] = task.size
        return sizes

    def _check_places(self, places: tuple[Residency, ...], key: str, sizes: dict[str, int]) -> dict[str, int]:
        seen: set[tuple[str, str | None]] = set()
        for index, place in enumerate(places):
            _check_names((place.value,), sizes, f".{key}[{index}]")
            self._check_place(place, f".{key}[{index}]", key)
            if (place.value, place.memory) in seen:
                raise fail(f"value {place.value!r} is listed twice", f".{key}[{index}]")
            seen.add((place.value, place.memory))
        values = {value: 0 for value, _ in seen}
        if len(values) < len(places) and self.is_placeable:
            for value, memory in sorted(seen, key=str):
                if memory == ANY and sum(other == value for other, _ in seen) > 1:
                    raise fail(f"value {value!r} is listed twice: its place is the schedule's choice", f".{key}")
        return values

    def _check_place(self, place: Residency, at: str, key: str) -> None:
        """Reject unknown memories, and copies of a value with a fixed place."""
        anywhere = place.memory == ANY and self.is_placeable
        if "copies" in place.model_fields_set and (not anywhere or key == "outputs"):
            raise fail('only an input with the memory "any" has copies, and only if no memory has this name', at)
        if not anywhere:
            check_in_memory_names([place.memory], self.machine, f"{at}.memory")
        elif key == "outputs" and not any(p.value == place.value and p.memory == ANY for p in self.inputs):
            raise fail('only an input with the memory "any" may end where it began', f"{at}.memory")


def _check_names(names: tuple[str, ...], known: dict[str, int], at: str, wrong: str = "is not a value") -> None:
    for index, name in enumerate(names):
        if name not in known:
            raise fail(f"{name!r} {wrong} of this instance", f"{at}[{index}]" if not at.endswith("]") else at)
    if len(set(names)) < len(names):
        seen: set[str] = set()
        name = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise fail(f"{name!r} is listed twice", at)


def _check_energies(task: Task, types: dict[str, str], at: str) -> None:
    """Reject energies by type that leave out a type that can run the task, given a processor of each type."""
    if task.parallel is not None or task.parts is not None:
        what = "parallel task" if task.parts is None else "collective"
        raise fail(f"a {what} has one energy", f"{at}.energy")
    assert isinstance(task.energy, dict)
    for name, processor in types.items():
        if task.time_on(name) is not None and name not in task.energy:
            wrong = f"is of type {name!r}, which has no energy" if name else "has no type, and energies are by type"
            raise fail(f"processor {processor!r} {wrong}", f"{at}.energy")


def check_acyclic(tasks: tuple[Task, ...], inputs: dict[str, int]) -> None:
    """Reject graphs in which some task can never run.

    A value becomes available with the first task that writes it (alternatives). Therefore the check tests reachability
    from the inputs, not only the absence of a directed cycle.
    """
    waiting: dict[str, list[int]] = {}
    missing = []
    ready = []
    for index, task in enumerate(tasks):
        absent = [name for name in task.read if name not in inputs]
        missing.append(len(absent))
        for name in absent:
            waiting.setdefault(name, []).append(index)
        if not absent:
            ready.append(index)
    available = set(inputs)
    done = 0
    while ready:
        done += 1
        for name in tasks[ready.pop()].written:
            if name not in available:
                available.add(name)
                for index in waiting.get(name, ()):
                    missing[index] -= 1
                    if missing[index] == 0:
                        ready.append(index)
    if done < len(tasks):
        cycle = _cycle(tasks, available, next(index for index, count in enumerate(missing) if count))
        names = [repr(elided(tasks[index].id)) for index in cycle]
        if len(names) > LONGEST_CYCLE:
            names[LONGEST_CYCLE - 2 : -1] = ["..."]
        count = f"{len(cycle):,} tasks" if len(cycle) > 1 else "1 task"
        raise fail(f"the graph has a cycle of {count}: {' -> '.join([*names, names[0]])}", f".tasks[{cycle[0]}].reads")


LONGEST_CYCLE = 6
"""Maximum tasks that a message lists."""


def _cycle(tasks: tuple[Task, ...], available: set[str], stuck: int) -> list[int]:
    """Return tasks of which each writes a value that the next one waits for, and the last one for the first."""
    writers = {name: index for index, task in enumerate(tasks) for name in task.written}
    path: dict[int, None] = {}
    while stuck not in path:
        path[stuck] = None
        stuck = next(writers[name] for name in tasks[stuck].read if name not in available)
    listed = [*path]
    cycle = listed[listed.index(stuck) :][::-1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]
