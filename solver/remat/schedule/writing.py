"""Writer of schedule documents: steps as text, several thousand at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice, pairwise
from json.encoder import encode_basestring
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remat.graph.machine import Machine
from remat.graph.names import Names
from remat.graph.taskgraph import IntArray, Ragged, TaskGraph
from remat.schedule.steps import WHOLE, StepKind, Steps

PART = 10_000
"""Steps that become text together."""

Texts = NDArray[np.object_]

_BETWEEN = ",\n    "


def document_chunks(
    head: dict[str, Any],
    steps: Steps | None,
    graph: TaskGraph,
    machine: Machine,
    addresses: Iterator[str] | None = None,
) -> Iterator[str]:
    """Yield a schedule document: the head's keys, then one line per step, then one per address."""
    # Numbers from a parsed document are decimal.
    texts = (json.dumps(value, ensure_ascii=False, default=float) for value in head.values())
    lines = [f"  {json.dumps(key)}: {text}" for key, text in zip(head, texts, strict=True)]
    yield "{\n" + ",\n".join(lines)
    if steps is not None:
        yield from _list_chunks("steps", _parts(steps, graph, machine))
    if addresses is not None:
        yield from _list_chunks("addresses", _batched(addresses))
    yield "\n}\n"


def _list_chunks(key: str, parts: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a key whose value is a list, one line per entry."""
    yield f',\n  "{key}": ['
    separator = "\n    "
    for part in parts:
        yield separator + _BETWEEN.join(part)
        separator = _BETWEEN
    yield "\n  ]"


def _batched(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yield batches of several thousand lines."""
    while part := list(islice(lines, PART)):
        yield part


def step_lines(steps: Steps, graph: TaskGraph, machine: Machine) -> Iterator[str]:
    """Yield each step as one line of JSON (without the separating comma); two to four million lines a second."""
    for part in _parts(steps, graph, machine):
        yield from part


def _parts(steps: Steps, graph: TaskGraph, machine: Machine) -> Iterator[list[str]]:
    writer = _Writer(steps, graph, machine)
    for begin in range(0, len(steps), PART):
        yield writer.lines(begin, min(begin + PART, len(steps)))


class _Writer:
    """Writes lines of steps column by column: the prefix, the start time and the suffix of each."""

    def __init__(self, steps: Steps, graph: TaskGraph, machine: Machine) -> None:
        self._steps = steps
        self._memories = [_quoted(memory.name) for memory in machine.memories]
        self._processors = [_quoted(processor.name) for processor in machine.processors]
        is_run = steps.kind == StepKind.RUN
        self._runs = _Texts(graph.tasks, steps.item[is_run]).around('{"run": ', "")
        values = _Texts(graph.values, np.concatenate((steps.item[~is_run], steps.drop.items)))
        self._values, self._alone = values.around("", ""), values.around(', "drop": [', "]")
        self._freed = steps.drop.counts
        self._partial = bool((steps.amount != WHOLE).any())

    def lines(self, begin: int, end: int) -> list[str]:
        """Return the lines of some steps."""
        steps = self._steps
        kind = steps.kind[begin:end]
        heads, tails = np.empty((2, end - begin), dtype=object)
        tails.fill("")
        is_run = kind == StepKind.RUN
        heads[is_run] = self._runs[steps.item[begin:end][is_run]]
        freed, last = self._freed[begin:end], steps.drop.start[begin + 1 : end + 1] - 1
        one, two = is_run & (freed == 1), is_run & (freed == 2)
        tails[one] = self._alone[steps.drop.items[last[one]]]
        pairs = zip(*(self._values[steps.drop.items[last[two] - k]].tolist() for k in (1, 0)), strict=True)
        tails[two] = [f', "drop": [{first}, {second}]' for first, second in pairs]
        for index in np.flatnonzero(is_run & (freed > 2)).tolist():
            tails[index] = f', "drop": {self._list(begin + index)}'
        if not is_run.all():
            self._add_copies(np.flatnonzero(kind == StepKind.COPY), begin, heads, tails)
            for index in np.flatnonzero(kind == StepKind.DROP).tolist():
                memory = self._memories[steps.source[begin + index]]
                heads[index] = f'{{"drop": {self._list(begin + index)}, "memory": {memory}'
        self._add_rare(begin, end, heads, tails)
        if steps.start is None:
            return [f"{head}{tail}}}" for head, tail in zip(heads.tolist(), tails.tolist(), strict=True)]
        columns = zip(heads.tolist(), steps.start[begin:end].tolist(), tails.tolist(), strict=True)
        return [f'{head}, "start": {start}{tail}}}' for head, start, tail in columns]

    def _list(self, step: int) -> str:
        return f"[{', '.join(self._values[self._steps.drop[step]].tolist())}]"

    def _add_copies(self, at: IntArray, begin: int, heads: Texts, tails: Texts) -> None:
        steps, memories = self._steps, self._memories
        step = at + begin
        ends = [f', "from": {source}, "to": {target}' for source in memories for target in memories]
        pair = (steps.source[step] * len(memories) + steps.target[step]).tolist()
        values = self._values[steps.item[step]].tolist()
        heads[at] = [f'{{"copy": {value}{ends[k]}' for value, k in zip(values, pair, strict=True)]
        tails[at[self._freed[step] > 0]] = ', "drop": true'
        if self._partial:
            for index, amount in zip(at.tolist(), steps.amount[step].tolist(), strict=True):
                if amount != WHOLE:
                    tails[index] = f', "bytes": {amount}{tails[index]}'

    def _add_rare(self, begin: int, end: int, heads: Texts, tails: Texts) -> None:
        """Write the rare keys: processors of runs, `after`, and `paired`."""
        steps = self._steps
        for index, on in _rows(steps.on, begin, end):
            if steps.kind[begin + index] == StepKind.RUN:
                heads[index] += f', "on": [{", ".join(self._processors[processor] for processor in on)}]'
        for index, after in _rows(steps.after, begin, end):
            heads[index] += f', "after": {after}'
        if steps.paired is not None:
            for index in np.flatnonzero(steps.paired[begin:end] & (steps.kind[begin:end] == StepKind.RUN)).tolist():
                tails[index] += ', "paired": true'


def _rows(rows: Ragged | None, begin: int, end: int) -> Iterator[tuple[int, list[int]]]:
    """Yield the rows from `begin` to `end` that are not empty, counted from `begin`."""
    if rows is None:
        return
    bounds = rows.start[begin : end + 1].tolist()
    items = rows.items[bounds[0] : bounds[-1]].tolist()
    for index, (first, last) in enumerate(pairwise(bounds)):
        if last > first:
            yield index, items[first - bounds[0] : last - bounds[0]]


def _quoted(name: str) -> str:
    return encode_basestring(name)


class _Texts:
    """Quoted names."""

    def __init__(self, names: Names, used: IntArray) -> None:
        occurs = np.zeros(len(names), dtype=bool)
        occurs[used[(used >= 0) & (used < len(names))]] = True
        self._at, self._count = np.flatnonzero(occurs), len(names)
        many = 4 * len(self._at) > len(names)
        listed = list(compress(names[:], occurs.tolist())) if many else [names[index] for index in self._at.tolist()]
        everything = "".join(listed)
        self._plain = _quoted(everything) == f'"{everything}"'  # no name has what is written otherwise
        self._listed = listed if self._plain else list(map(_quoted, listed))

    def around(self, before: str, after: str) -> Texts:
        """Return, by index, each name in quotes with these texts around it."""
        if self._plain:
            before, after = f'{before}"', f'"{after}'
        texts: Texts = np.empty(self._count, dtype=object)
        texts[self._at] = [f"{before}{text}{after}" for text in self._listed]
        return texts
