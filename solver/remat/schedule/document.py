"""The schedule formats `remat.schedule/1` and `/2`: steps as JSON, and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NoReturn, overload

import numpy as np

from remat.documents import collector_paused
from remat.errors import InstanceError
from remat.graph.machine import Machine
from remat.graph.names import Names
from remat.graph.taskgraph import NumberArray, TaskGraph
from remat.instance.fields import units_scope
from remat.instance.lazy_text import ListText
from remat.instance.native import native
from remat.messages import brief, counted, listing, nearest, unknown_memory
from remat.schedule.reading import columns_of, read_schedule
from remat.schedule.steps import WHOLE, StepBuilder, StepKind, Steps
from remat.units import LARGEST_SIZE, LARGEST_TOTAL, Number, Units, parse_size, parse_time

SCHEMA = "remat.schedule/1"
SCHEMA_2 = "remat.schedule/2"
"""`remat.schedule/1`, and where placeable inputs lie (`initial`), or orders or a pattern of a pipeline, no steps;
how its batch is divided (`samples`, `cut`); and addresses (`arenas`, `addresses`)."""
SCHEMAS = (SCHEMA, SCHEMA_2)
SUMMARY_SCHEMA = "remat.summary/1"
"""The figures of a result without its steps."""

KEYS: Mapping[str, frozenset[str]] = {
    "": frozenset(
        {
            *("schema", "instance", "machine", "algorithm", "options", "seed", "status", "optimal_within"),
            *("termination", "scope", "makespan", "peak_memory", "recompute_time", "transferred", "lower_bound"),
            *("bounds", "least_budget", "answer", "solve_seconds", "notes", "steps"),
        }
    ),
    SCHEMA_2: frozenset({"initial", "stages", "orders", "period", "pattern", "samples", "cut", "arenas", "addresses"}),
    "instance": frozenset({"name", "digest"}),
    "arenas": frozenset({"memory", "size", "alignment", "reserved", "fixed"}),
    "addresses": frozenset({"value", "workspace", "memory", "first", "last", "offset", "size"}),
    "bounds": frozenset({"value", "scope", "source"}),
    "least_budget": frozenset({"memory", "size", "task", "sufficient", "scope"}),
    "answer": frozenset(
        {"question", "quantity", "value", "memory", "slots", "proved", "bound", "scope", "ask", "solves"}
    ),
}
"""The keys of a schedule document, and of the objects (or lists of them) in it; steps and machine have their own."""
UNKNOWN_ITEM = -2

RUN, COPY, DROP = (int(kind) for kind in StepKind)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a task.

    Attributes
    ----------
    task : str
    start : number or None
        None: as early as possible.
    on : tuple of str
        Processors; empty: the first one.
    drop : tuple of str
        Values that it frees at its end, in the memory of its processor.
    after : tuple of int
        Earlier steps, by index, at whose end it may start.
    paired : bool
        Whether it runs at the same time as the run before it.
    """

    task: str
    start: Number | None = None
    on: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    paired: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a value from one memory to another.

    Attributes
    ----------
    value, source, target : str
    start : number or None
        None: as early as possible.
    drop : bool
        Whether it frees the value in the source.
    bytes : int or None
        Moved part of the value; None: all of it.
    after : tuple of int
        Earlier steps, by index, at whose end it may start.
    """

    value: str
    source: str
    target: str
    start: Number | None = None
    drop: bool = False
    bytes: int | None = None
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """Values that are freed in one memory.

    Attributes
    ----------
    values : tuple of str
    memory : str
    start : number or None
        None: as early as possible.
    after : tuple of int
        Earlier steps, by index, at whose end they may be freed.
    """

    values: tuple[str, ...]
    memory: str
    start: Number | None = None
    after: tuple[int, ...] = ()


Step = Run | Copy | Drop


class StepView(Sequence[Step]):
    """Steps with names, created on access; the columns are in `columns`."""

    def __init__(self, columns: Steps, graph: TaskGraph, machine: Machine) -> None:
        self.columns = columns
        self._graph = graph
        self._machine = machine

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        return f"<StepView: {counted(len(self), 'step')}>"

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | Sequence[Step]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        steps, values = self.columns, self._graph.values
        start = None if steps.start is None else steps.start[index].item()
        drop = tuple(values[int(value)] for value in steps.drop[index].tolist())
        after = () if steps.after is None else tuple(steps.after[index].tolist())
        kind = steps.kind[index]
        if kind == StepKind.RUN:
            on = () if steps.on is None else steps.on[index].tolist()
            names = tuple(self._machine.processors[processor].name for processor in on)
            paired = steps.paired is not None and bool(steps.paired[index])
            return Run(self._graph.tasks[int(steps.item[index])], start, names, drop, after, paired)
        source = self._machine.memories[int(steps.source[index])].name
        if kind == StepKind.DROP:
            return Drop(drop, source, start, after)
        target = self._machine.memories[int(steps.target[index])].name
        amount = int(steps.amount[index])
        value = values[int(steps.item[index])]
        return Copy(value, source, target, start, bool(drop), None if amount == WHOLE else amount, after)


def read_head(document: Any) -> dict[str, Any]:
    """Check that a document is a schedule, with keys that its schema knows; return it.

    Raises
    ------
    InstanceError
        For anything else.
    """
    try:
        return _checked_head(document)
    except InstanceError:
        if isinstance(document, dict) and isinstance(document.get("steps"), ListText):
            document["steps"].listed()  # report malformed steps first
        raise


def _checked_head(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InstanceError("a schedule is a JSON object", "$")
    schema = document.get("schema")
    if schema not in SCHEMAS:
        hint = "the key is missing" if schema is None else f"found {brief(schema)}"
        if str(schema).startswith("remat.instance/"):
            hint += ", an instance"
        elif schema == SUMMARY_SCHEMA:
            hint += ", the figures of a schedule without its steps"
        raise InstanceError(f"expected {SCHEMA!r} or {SCHEMA_2!r}: {hint}", "$.schema")
    _check_keys(document)
    return document


def read_any_schedule(given: Any) -> Any:
    """Return a schedule document: a dict, a sequence of steps, or what a path or an open file contains."""
    if isinstance(given, (list, tuple, StepView)):
        return {"schema": SCHEMA_2, "steps": native([_entry(step) for step in given])}
    return native(given) if isinstance(given, dict) else read_schedule(given)


def _entry(step: Any) -> Any:
    """Return a step as an object of a document; anything but a `Step` is returned as it is."""
    if isinstance(step, Run):
        found: dict[str, Any] = {"run": step.task, "on": [*step.on], "drop": [*step.drop], "paired": step.paired}
    elif isinstance(step, Copy):
        found = {"copy": step.value, "from": step.source, "to": step.target, "drop": step.drop, "bytes": step.bytes}
    elif isinstance(step, Drop):
        found = {"drop": [*step.values], "memory": step.memory}
    else:
        return step
    found |= {"start": step.start, "after": [*step.after]}
    return {key: one for key, one in found.items() if one is not None and one is not False and one != []}


def parse_steps(document: Any, graph: TaskGraph, machine: Machine, units: Units) -> Steps:
    """Read the steps of a schedule document; unknown names are noted for the verifier, not refused.

    Raises
    ------
    InstanceError
        For malformed schedules: wrong types, unknown keys anywhere, start times on some steps only.
    """
    listed = read_head(document).get("steps")
    steps = columns_of(listed, graph, machine) if isinstance(listed, ListText) else None
    if steps is None:
        steps = _listed_steps(listed, graph, machine, units)
    if steps.paired is not None and document["schema"] == SCHEMA:
        step = int(np.flatnonzero(steps.paired)[0])
        raise InstanceError(f"only {SCHEMA_2!r} has simultaneous steps", f"$.steps[{step}].paired")
    return replace(steps, initial=read_initial(document, graph, machine) or ())


def _listed_steps(listed: Any, graph: TaskGraph, machine: Machine, units: Units) -> Steps:
    if isinstance(listed, ListText):
        listed = listed.listed()
    if not isinstance(listed, list):
        raise InstanceError("the schedule has no list of steps", "$.steps")
    with units_scope(units), collector_paused():
        return _StepParser(graph, machine, units).parse(listed)


def read_initial(document: dict[str, Any], graph: TaskGraph, machine: Machine) -> tuple[tuple[int, int], ...] | None:
    """Read the initial memories of placeable inputs as (value, memory); None if the document lists none."""
    given = document.get("initial")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise InstanceError("expected an object: the name of a value -> its memories", "$.initial")
    places: list[tuple[int, int]] = []
    for name, memories in given.items():
        value = graph.values.find(name)
        if value is None:
            raise InstanceError(f"unknown value {brief(name)}", "$.initial")
        for memory in memories if isinstance(memories, list) else [memories]:
            index = machine.memory_index.get(memory) if isinstance(memory, str) else None
            if index is None:
                raise InstanceError(unknown_memory(memory, machine.memory_index), f"$.initial.{name}")
            places.append((value, index))
    return tuple(places)


def initial_document(steps: Steps, graph: TaskGraph, machine: Machine) -> dict[str, list[str]]:
    """Return the key `initial` of a schedule document."""
    return initial_of_places(steps.initial, graph, machine)


def initial_of_places(places: Iterable[tuple[int, int]], graph: TaskGraph, machine: Machine) -> dict[str, list[str]]:
    """Return the key `initial` for places as (value, memory)."""
    found: dict[str, list[str]] = {}
    for value, memory in places:
        found.setdefault(graph.values[value], []).append(machine.memories[memory].name)
    return found


def schema_of(steps: Steps | None, orders: object) -> str:
    """Return the lowest schema that can express a schedule."""
    newer = steps is not None and (steps.initial or steps.paired is not None)
    return SCHEMA_2 if orders is not None or newer else SCHEMA


def _start_array(starts: list[Number]) -> NumberArray:
    """Return start times as int64 if all of them are `int`; they are compared but never summed."""
    return np.array(starts, dtype=np.int64 if set(map(type, starts)) <= {int} else np.float64)


def _check_keys(document: dict[str, Any]) -> None:
    """Reject unknown keys of a schedule document: readers could mistake their content for verified data."""
    newer = KEYS[SCHEMA_2] if document["schema"] == SCHEMA_2 else frozenset[str]()
    _refuse_unknown(document, KEYS[""] | newer, "a schedule", "$")
    for key, known in KEYS.items():
        part = document.get(key) if key and key != SCHEMA_2 else None
        for index, one in enumerate(part if isinstance(part, list) else [part]):
            if isinstance(one, dict):
                path = f"$.{key}[{index}]" if isinstance(part, list) else f"$.{key}"
                _refuse_unknown(one, known, f"the schedule's {key}", path)


def _refuse_unknown(document: dict[str, Any], known: Collection[str], where: str, path: str) -> None:
    if extra := document.keys() - known:
        key = min(extra)
        near = nearest(key, sorted(known))
        hint = f"did you mean {near!r}?" if near else f"known are {listing(sorted(known))}"
        raise InstanceError(f"unknown key {brief(key)} in {where}; {hint}", path)


_KEYS = {
    "run": frozenset({"run", "on", "start", "drop", "after", "paired"}),
    "copy": frozenset({"copy", "from", "to", "start", "drop", "bytes", "after"}),
    "drop": frozenset({"drop", "memory", "start", "after"}),
}


class _UnusualError(Exception):
    """A step that the fast parser does not recognise."""


class _Found(dict[Any, int]):
    """Indices of names: looked up lazily, or in advance for many steps; `KeyError` for other keys."""

    def __init__(self, names: Names, steps: int) -> None:
        super().__init__(zip(names, range(len(names)), strict=True) if steps >= len(names) else ())
        self._names = names

    def __missing__(self, name: object) -> int:
        found = self._names.find(name) if type(name) is str else None
        if found is None:
            raise KeyError(name)
        self[name] = found
        return found


class _StepParser:
    """Reads steps into columns.

    `_lean` reads well-formed steps with one lookup per key. All other steps go through `_step`, which accepts them
    or reports what is wrong.
    """

    def __init__(self, graph: TaskGraph, machine: Machine, units: Units) -> None:
        self._graph, self._machine, self._units = graph, machine, units
        self._unknown: dict[int, tuple[str, str]] = {}
        self._builder = StepBuilder()
        self._starts: list[Number] = []

    def parse(self, listed: list[Any]) -> Steps:
        self._lean(listed)
        start: NumberArray | None = _start_array(self._starts) if self._starts or not listed else None
        return self._builder.build(start=start, unknown=self._unknown)

    def _lean(self, listed: list[Any]) -> None:
        tasks, values = (_Found(names, len(listed)) for names in (self._graph.tasks, self._graph.values))
        memories, processors = self._machine.memory_index, self._machine.processor_index
        starts, builder = self._starts, self._builder
        kinds, items, sources, targets, amounts, drops = builder.columns
        none: Sequence[int] = ()
        for index, step in enumerate(listed):
            seen = 1
            item = source = target = -1
            amount, on, after, dropped = WHOLE, none, none, none
            try:
                freed = step.get("drop")
                if (name := step.get("run")) is not None:
                    kind, item = RUN, tasks[name]
                    if freed is not None:
                        seen += 1
                        if type(freed) is not list:
                            self._unusual()
                        # A comprehension would cost as much as the rest of a step.
                        dropped = (values[freed[0]],) if len(freed) == 1 else [values[value] for value in freed]
                    if (given := step.get("on")) is not None:
                        seen += 1
                        on = [processors[processor] for processor in given] if type(given) is list else self._unusual()
                elif (name := step.get("copy")) is not None:
                    seen = 3
                    kind, item, source, target = COPY, values[name], memories[step["from"]], memories[step["to"]]
                    if freed is not None:
                        seen += 1
                        dropped = (item,) if freed is True else none if freed is False else self._unusual()
                    if (size := step.get("bytes")) is not None:
                        seen += 1
                        amount = size if type(size) is int and 0 <= size <= LARGEST_SIZE else self._unusual()
                else:
                    kind, source = DROP, 0
                    dropped = [values[value] for value in freed] if type(freed) is list else self._unusual()
                    if (memory := step.get("memory")) is not None:
                        seen += 1
                        source = memories[memory]
                if (time := step.get("start")) is not None:
                    seen += 1
                    if type(time) is not int:
                        time = float(time) if type(time) is Decimal and 0 <= time <= LARGEST_TOTAL else self._unusual()
                    elif not 0 <= time <= LARGEST_SIZE:
                        self._unusual()
                if len(step) > seen and (given := step.get("after")) is not None:
                    seen += 1
                    after = self._after(given, index, "")
                if len(step) != seen or len(starts) != (0 if time is None else index):
                    self._unusual()
            except (_UnusualError, KeyError, TypeError, AttributeError, ArithmeticError, InstanceError):
                self._step(index, step)
                continue
            if time is not None:
                starts.append(time)
            kinds.append(kind)
            items.append(item)
            sources.append(source)
            targets.append(target)
            amounts.append(amount)
            drops.append(dropped)
            if on or after:
                builder.ordered(index, on, after)

    def _unusual(self) -> NoReturn:
        raise _UnusualError

    def _step(self, index: int, step: Any) -> None:
        starts = self._starts
        path = f"$.steps[{index}]"
        if not isinstance(step, dict):
            raise InstanceError("a step is a JSON object", path)
        kind = "run" if "run" in step else "copy" if "copy" in step else "drop" if "drop" in step else None
        if kind is None:
            raise InstanceError("a step has one of the keys run, copy, drop", path)
        if not step.keys() <= _KEYS[kind]:
            _refuse_unknown(step, _KEYS[kind], f"a {kind} step", path)
        if "start" in step:
            starts.append(self._start(step["start"], path))
        if starts and len(starts) != index + 1:
            raise InstanceError("either every step has a start, or none has", path)
        after = self._after(step.get("after", []), index, path)
        if kind == "run":
            self._run(index, step, path, after)
        elif kind == "copy":
            self._copy(index, step, path, after)
        else:
            self._drop(index, step, path, after)

    def _start(self, value: Any, path: str) -> Number:
        # A start is a sum of times of the instance, and may be larger than each of them.
        finite = value.is_finite() if isinstance(value, Decimal) else isinstance(value, float)
        if finite and -LARGEST_TOTAL <= value < 0:
            return float(value)  # the verifier reports it
        if type(value) is int and -(2**62) <= value < 0:
            return value
        try:
            return parse_time(value, self._units, largest=LARGEST_TOTAL)
        except ValueError as error:
            raise InstanceError(str(error), f"{path}.start") from None

    def _after(self, value: Any, index: int, path: str) -> list[int]:
        if not isinstance(value, list) or any(type(item) is not int or not 0 <= item < index for item in value):
            raise InstanceError("after: is a list of indices of earlier steps", f"{path}.after")
        return value

    def _names(self, value: Any, path: str) -> list[str]:
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            raise InstanceError("expected a list of names", path)
        return value

    def _value(self, index: int, name: str) -> int:
        found = self._graph.values.find(name)
        if found is None:
            self._unknown.setdefault(index, ("unknown-value", name))
            return UNKNOWN_ITEM
        return found

    def _memory(self, index: int, name: Any, path: str) -> int:
        if not isinstance(name, str):
            raise InstanceError("expected the name of a memory", path)
        found = self._machine.memory_index.get(name)
        if found is None:
            self._unknown.setdefault(index, ("unknown-memory", name))
            return 0
        return found

    def _run(self, index: int, step: dict[str, Any], path: str, after: list[int]) -> None:
        name = step["run"]
        if not isinstance(name, str):
            raise InstanceError("expected the name of a task", f"{path}.run")
        task = self._graph.tasks.find(name)
        if task is None:
            self._unknown.setdefault(index, ("unknown-task", name))
        on = []
        for processor in self._names(step.get("on", []), f"{path}.on"):
            found = self._machine.processor_index.get(processor)
            if found is None:
                self._unknown.setdefault(index, ("unknown-processor", processor))
            else:
                on.append(found)
        drop = [self._value(index, value) for value in self._names(step.get("drop", []), f"{path}.drop")]
        unknown = index in self._unknown
        paired = step.get("paired", False)
        if not isinstance(paired, bool) or (paired and "start" not in step):
            raise InstanceError("paired: is true or false, of a step with a start", f"{path}.paired")
        self._builder.run(
            UNKNOWN_ITEM if task is None or unknown else task,
            drop=() if unknown else drop,
            on=on,
            after=after,
            paired=paired,
        )

    def _copy(self, index: int, step: dict[str, Any], path: str, after: list[int]) -> None:
        if not isinstance(step["copy"], str):
            raise InstanceError("expected the name of a value", f"{path}.copy")
        value = self._value(index, step["copy"])
        source = self._memory(index, step.get("from"), f"{path}.from")
        target = self._memory(index, step.get("to"), f"{path}.to")
        drop = step.get("drop", False)
        if not isinstance(drop, bool):
            raise InstanceError("drop: of a copy is true or false", f"{path}.drop")
        amount = WHOLE
        if "bytes" in step:
            try:
                amount = parse_size(step["bytes"], self._units)
            except ValueError as error:
                raise InstanceError(str(error), f"{path}.bytes") from None
        if index in self._unknown:
            value, drop = UNKNOWN_ITEM, False
        self._builder.copy(value, source, target, drop=drop, amount=amount, after=after)

    def _drop(self, index: int, step: dict[str, Any], path: str, after: list[int]) -> None:
        values = [self._value(index, name) for name in self._names(step["drop"], f"{path}.drop")]
        first = self._machine.memories[0].name
        memory = self._memory(index, step.get("memory", first), f"{path}.memory")
        self._builder.drop(() if index in self._unknown else values, memory, after=after)
