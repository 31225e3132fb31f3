"""Kind `dag`: a task graph, tasks and values apart."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from remat.instance.base import BaseInstance, Text, check_in_memory_names
from remat.instance.fields import LARGEST_COUNT, Count, Flag, LazySchema, Model, Name, Size, Time, check_total, fail


class Value(Model):
    """Something that occupies memory while it is resident."""

    id: Name
    size: Size


def _alpha(value: object) -> float:
    number = float(value) if isinstance(value, (int, float)) or hasattr(value, "is_finite") else -1.0  # type: ignore[arg-type]
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise fail(f"expected a number between 0 and 1, not {value!r:.60}")
    return number


class Parallel(Model):
    """On p <= `max` processors of one memory the task takes time / p^alpha."""

    max: Count
    alpha: Annotated[float, PlainValidator(_alpha), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})] = (
        1.0
    )


class Task(Model):
    """Something that runs; `size` instead of `writes` makes it write one value named after itself."""

    id: Name
    time: Time
    reads: tuple[Name, ...] = ()
    writes: tuple[Name, ...] | None = None
    size: Size | None = None
    workspace: Size = 0
    in_place: Flag = False
    required: Flag = True
    recomputable: Flag = True
    once: Flag = False
    phase: Text = ""
    parallel: Parallel | None = None

    @property
    def written(self) -> tuple[str, ...]:
        """The values that the task writes."""
        return (self.id,) if self.writes is None else self.writes


def _place(value: object) -> Any:
    return {"value": value} if isinstance(value, str) else value


class Residency(Model):
    """A value, and the memory it lies in (null: the first)."""

    value: Name
    memory: Name | None = None


Place = Annotated[
    Residency,
    BeforeValidator(_place),
    LazySchema(lambda: {"anyOf": [{"type": "string"}, Residency.model_json_schema()]}),
]


class DagInstance(BaseInstance):
    """Tasks and the values they read and write; the listed order is the reference order."""

    kind: Literal["dag"] = "dag"
    values: tuple[Value, ...] = ()
    tasks: Annotated[tuple[Task, ...], Field(min_length=1, max_length=LARGEST_COUNT)]
    inputs: tuple[Place, ...] = ()
    pinned_inputs: tuple[Name, ...] = ()
    outputs: tuple[Place, ...] = ()

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
