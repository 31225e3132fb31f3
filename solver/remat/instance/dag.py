"""Kind `dag`: a task graph, tasks and values apart."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from remat.instance.base import BaseInstance, Text, check_in_memory_names
from remat.instance.fields import (
    LARGEST_COUNT,
    Count,
    Flag,
    LazySchema,
    Many,
    Model,
    Name,
    Size,
    Time,
    check_total,
    fail,
)
from remat.units import brief

Names = Annotated[tuple[Name, ...], Many]


class Value(Model):
    """Something that occupies memory while it is resident."""

    id: Name = Field(description="Its name, unique among the values.")
    size: Size = Field(description="Bytes that it occupies while it is resident.")


def _alpha(value: object) -> float:
    number = float(value) if isinstance(value, (int, float)) or hasattr(value, "is_finite") else -1.0  # type: ignore[arg-type]
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise fail(f"expected a number between 0 and 1, not {brief(value)}")
    return number


class Parallel(Model):
    """On p <= `max` processors of one memory the task takes time / p^alpha."""

    max: Count = Field(description="Most processors for one run.")
    alpha: Annotated[float, PlainValidator(_alpha), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})] = (
        Field(default=1.0, description="1: p processors are p times as fast; 0: no faster than one.")
    )


class Task(Model):
    """Something that runs; `size` instead of `writes` makes it write one value named after itself."""

    id: Name = Field(description="Its name, unique among the tasks.")
    time: Time = Field(description="Time of one run, on one processor.")
    reads: Names = Field(default=(), description="Values that must be resident while it runs.")
    writes: Names | None = Field(
        default=None,
        description="Values that each run makes, all of them. Several tasks may write one value: alternatives.",
    )
    size: Size | None = Field(
        default=None, description="Instead of writes: it writes one value of this size, which has the task's name."
    )
    workspace: Size = Field(
        default=0, description="Bytes that it needs beside what it reads and writes, while it runs."
    )
    in_place: Flag = Field(
        default=False,
        description="What it writes may take the place of values that it reads and that are freed at its end.",
    )
    required: Flag = Field(
        default=True,
        description="Runs at least once. False: it need not run, unless only it makes a value that is wanted.",
    )
    recomputable: Flag = Field(default=True, description="May run more than once.")
    once: Flag = Field(default=False, description="Runs exactly once, as an update of parameters does.")
    phase: Text = Field(
        default="",
        description="forward, loss or backward: for pictures, and algorithms that choose what the forward pass keeps. "
        "Other texts mean nothing.",
    )
    parallel: Parallel | None = Field(default=None, description="How it may run on several processors; null: on one.")

    @property
    def written(self) -> tuple[str, ...]:
        """The values that the task writes."""
        return (self.id,) if self.writes is None else self.writes


def _place(value: object) -> Any:
    return {"value": value} if isinstance(value, str) else value


class Residency(Model):
    """A value, and the memory it lies in (null: the first)."""

    value: Name = Field(description="The value.")
    memory: Name | None = Field(default=None, description="The memory; null: the first.")


Place = Annotated[
    Residency,
    BeforeValidator(_place),
    LazySchema(lambda: {"anyOf": [{"type": "string"}, Residency.model_json_schema()]}),
]


class DagInstance(BaseInstance):
    """Tasks and the values they read and write; the listed order is the reference order."""

    kind: Literal["dag"] = "dag"
    values: Annotated[tuple[Value, ...], Many] = Field(
        default=(), description="The values, but those that a task's size declares."
    )
    tasks: Annotated[
        tuple[Task, ...],
        Field(
            min_length=1,
            max_length=LARGEST_COUNT,
            description="The tasks; their order, where topological, is the reference order.",
        ),
        Many,
    ]
    inputs: Annotated[tuple[Place, ...], Many] = Field(
        default=(),
        description="Values resident at the start. They count, may be freed, and are made again only by a task.",
    )
    pinned_inputs: Names = Field(default=(), description="Inputs that may not be freed.")
    outputs: Annotated[tuple[Place, ...], Many] = Field(
        default=(), description="Values that must be resident at the end."
    )

    @model_validator(mode="after")
    def _references(self) -> Self:
        sizes = self._declared()
        written: set[str] = set()
        for index, task in enumerate(self.tasks):
            if (task.size is None) == (task.writes is None):
                raise fail("give either size (the task writes one value of its name) or writes", f".tasks[{index}]")
            for key, names in (("reads", task.reads), ("writes", task.written)):
                _check_names(names, sizes, f".tasks[{index}].{key}")
            if not task.required and task.once:
                raise fail("a task that runs exactly once is required", f".tasks[{index}].once")
            written.update(task.written)
        inputs = self._check_places(self.inputs, "inputs", sizes)
        self._check_places(self.outputs, "outputs", sizes)
        _check_names(self.pinned_inputs, inputs, ".pinned_inputs", "is not an input")
        for name in sizes:
            if name not in written and name not in inputs:
                raise fail(f"value {name!r} is neither an input nor written by a task", ".values")
        workspaces = sum(task.workspace for task in self.tasks)
        check_total(self.static_memory + sum(sizes.values()) + workspaces, "the sizes of the graph")
        _check_acyclic(self.tasks, inputs)
        return self

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
            check_in_memory_names([place.memory], self.machine, f".{key}[{index}].memory")
            if (place.value, place.memory) in seen:
                raise fail(f"value {place.value!r} is listed twice", f".{key}[{index}]")
            seen.add((place.value, place.memory))
        return {value: 0 for value, _ in seen}


def _check_names(names: tuple[str, ...], known: dict[str, int], at: str, wrong: str = "is not a value") -> None:
    for index, name in enumerate(names):
        if name not in known:
            raise fail(f"{name!r} {wrong} of this instance", f"{at}[{index}]" if not at.endswith("]") else at)
    if len(set(names)) < len(names):
        seen: set[str] = set()
        name = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise fail(f"{name!r} is listed twice", at)


def _check_acyclic(tasks: tuple[Task, ...], inputs: dict[str, int]) -> None:
    """Refuse graphs in which some task can never run.

    A value becomes available with the first task that writes it (alternatives), so this is reachability
    from the inputs, not merely the absence of a directed cycle.
    """
    waiting: dict[str, list[int]] = {}
    missing = []
    ready = []
    for index, task in enumerate(tasks):
        absent = [name for name in task.reads if name not in inputs]
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
        stuck = next(index for index, count in enumerate(missing) if count)
        name = next(n for n in tasks[stuck].reads if n not in available)
        raise fail(
            f"the graph has a cycle: task {tasks[stuck].id!r} waits for {name!r}, which waits for itself",
            f".tasks[{stuck}].reads",
        )
