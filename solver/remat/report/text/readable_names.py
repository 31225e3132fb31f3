"""Readable names of tasks, values and steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from remat.graph.machine import Machine
from remat.graph.names import with_module
from remat.graph.taskgraph import TaskGraph
from remat.messages import printable
from remat.schedule.steps import StepKind, Steps
from remat.units import shown_base, size_as_typed, sizes_shown_as

LONGEST_NAME = 48
"""Names longer than this are abbreviated in tables; the JSON documents have them in full."""


def shown_name(name: str) -> str:
    """Return a name from a document as a terminal may print it: no control characters, not too long."""
    text = printable(name)
    if len(text) <= LONGEST_NAME:
        return text
    half = (LONGEST_NAME - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def short_name(name: str, most: int = 16, end: int = 4) -> str:
    """Shorten a name to fit a margin: its beginning and its last letters."""
    text = shown_name(name)
    return text if len(text) <= most else f"{text[: most - 3 - end]}...{text[-end:]}"


@contextmanager
def sizes_as_limits(machine: Machine) -> Iterator[None]:
    """Show sizes in the kind of unit, decimal or binary, in which the first limit of a machine's memories is round.

    A kind that is already chosen, as by a budget on the command line, remains.
    """
    limits = [memory.capacity for memory in machine.memories if memory.capacity is not None]
    if shown_base() is not None:
        yield
        return
    with sizes_shown_as(map(size_as_typed, limits)):
        yield


def shown_in_module(name: str, module: str) -> str:
    """Return a task's name with its module, stage or layer, unless that is empty."""
    return with_module(name, module, shown_name)


def shown_task(graph: TaskGraph, task: int) -> str:
    """Name a task of a graph, with its module, stage or layer."""
    return graph.described(task, shown_name)


def shown_value(graph: TaskGraph, value: int) -> str:
    """Name a value of a graph, with the module, stage or layer of its producer."""
    return graph.described_value(value, shown_name)


def names_of_task(graph: TaskGraph, task: int) -> tuple[str, str]:
    """Return a long and a short name of a task."""
    return shown_task(graph, task), shown_name(graph.tasks[task])


def names_of_value(graph: TaskGraph, value: int) -> tuple[str, str, str]:
    """Return a long, a short and a very short name of a value."""
    name = graph.values[value]
    return shown_value(graph, value), shown_name(name), short_name(name)


def shown_step(graph: TaskGraph, machine: Machine, steps: Steps, index: int | None, *, short: bool = False) -> str:
    """Name a step by its action (`short`: without destination and values); None is the time before the first step."""
    if index is None:
        return "initial residency"
    item = int(steps.item[index])
    if steps.kind[index] == StepKind.RUN:
        return shown_task(graph, item)
    if steps.kind[index] == StepKind.COPY:
        target = machine.memories[int(steps.target[index])].name
        return f"copy of {shown_value(graph, item)}" + ("" if short else f" to {shown_name(target)}")
    values = steps.drop[index].tolist()
    return "drop" if short else f"drop of {', '.join(shown_value(graph, value) for value in values)}"
