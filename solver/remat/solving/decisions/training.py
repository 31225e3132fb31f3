"""Training decisions of a chain: where parameters and optimizer states are, and which processors update them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from remat.graph.taskgraph import PARAMETERS, STATES
from remat.messages import elided, noun_of, printable
from remat.schedule.steps import StepKind
from remat.solving.decisions.phrases import ranges, shown_size

if TYPE_CHECKING:
    from remat.solving.result import Result

MOST_NAMES = 6
"""Ranges of equally named stages that one line describes."""

LONGEST_CHAIN = 10_000
"""Stages of a chain whose names are put into words."""

_STORED = re.compile(r"([wo])([0-9]+)")
"""Parameters or optimizer states of a stage."""

_UPDATE = re.compile(r"U([0-9]+)")
"""A task that updates the parameters of a stage."""

ROLES = {"w": PARAMETERS, "o": STATES}


def trains(result: Result) -> bool:
    """Whether the result is of a chain whose parameters are values of its graph."""
    instance = result.instance
    return instance is not None and instance.is_chain and instance.has_parameters


def stage_names(result: Result) -> str:
    """Return which stages have which name, ``1 embedding, 2-33 block, 34 head``, if names repeat and are few."""
    instance, graph = result.instance, result.graph
    if instance is None or instance.kind != "chain" or graph.modules is None or instance.length > LONGEST_CHAIN:
        return ""
    names = [graph.module(task) for task in range(instance.length)]  # the forwards come first
    found = [
        (name, [number for number, _ in own]) for name, own in groupby(enumerate(names, 1), key=lambda one: one[1])
    ]
    if not all(names) or not 1 < len(found) <= MOST_NAMES or len(found) == len(names):
        return ""
    listed = (f"{own[0]}{f'-{own[-1]}' if len(own) > 1 else ''} {elided(printable(name), 36)}" for name, own in found)
    return ", ".join(listed)


def homes(result: Result) -> dict[str, dict[str, list[int]]]:
    """Return the stages whose parameters (`w`) and optimizer states (`o`) are initially in each memory."""
    graph, machine = result.graph, result.machine
    found: dict[str, dict[str, list[int]]] = {letter: defaultdict(list) for letter in ROLES}
    for place in graph.inputs if trains(result) else ():
        named = _STORED.fullmatch(str(graph.values[place.value]))
        if named is not None:
            found[named[1]][place.memory or machine.memories[0].name].append(int(named[2]))
    return found


def home_words(result: Result, most: int | None) -> Iterator[str]:
    """Describe in which memories parameters and optimizer states are initially, if there are several memories."""
    if len(result.machine.memories) == 1:
        return
    told = []
    for letter, by_memory in homes(result).items():
        places = []
        for memory, stages in by_memory.items():
            size = sum(_size(result, f"{letter}{stage}") for stage in stages)
            which = f" ({noun_of(len(stages), 'stage')} {ranges(sorted(stages), most)})" if len(by_memory) > 1 else ""
            places.append(f"{shown_size(size, result.units)} in {printable(memory)}{which}")
        if places:
            told.append(f"{ROLES[letter]}: {', '.join(places)}")
    if told:
        yield "; ".join(told)


def updaters(result: Result) -> Mapping[int, str]:
    """Return the processors that update each stage, joined by ``+``; empty if nothing is updated."""
    steps, processors = result.columns, result.machine.processors
    if steps is None or not trains(result):
        return {}
    tasks, found = result.graph.tasks, dict[int, str]()
    for index, (kind, item) in enumerate(zip(steps.kind.tolist(), steps.item.tolist(), strict=True)):
        if kind == StepKind.RUN and (task := _UPDATE.fullmatch(str(tasks[item]))):
            on = [] if steps.on is None else steps.on[index].tolist()
            found[int(task[1])] = "+".join(printable(processors[k].name) for k in on or [0])
    return found


def update_words(result: Result, most: int | None) -> Iterator[str]:
    """Describe which processors update which stages, if the machine has several."""
    if len(result.machine.processors) == 1:
        return
    found: dict[str, list[int]] = defaultdict(list)
    for stage, name in updaters(result).items():
        found[name].append(stage)
    if not found:
        return
    listed = []
    for name, stages in sorted(found.items(), key=lambda pair: -len(pair[1])):
        states = sum(_size(result, f"o{stage}") for stage in stages)
        size = f" (optimizer states: {shown_size(states, result.units)})" if states else ""
        listed.append(f"stage{'s' if len(stages) > 1 else ''} {ranges(sorted(stages), most)} on {name}{size}")
    yield f"update {', and '.join(listed)}"


def _size(result: Result, name: str) -> int:
    """Return the bytes of a value; 0 if the graph has none of that name."""
    index = result.graph.values.find(name)
    return 0 if index is None else int(result.graph.size[index])
