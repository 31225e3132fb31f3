"""The addresses of a schedule document: one row for each residency of a value, and for each workspace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from remat.errors import InstanceError
from remat.graph.machine import Machine
from remat.graph.names import Names
from remat.graph.taskgraph import IntArray, TaskGraph
from remat.messages import brief, unknown_memory
from remat.units import LARGEST_SIZE

NONE = -1
"""The value of a workspace, the task of a value, and the step before the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """The range of addresses that contains all residencies of a memory.

    Attributes
    ----------
    memory : int
    size : int
        Bytes, from address 0. The static bytes of the memory come first.
    alignment : int
        A power of two that divides every address.
    reserved : tuple of (int, int)
        Half-open ranges of addresses that no residency may use.
    fixed : mapping of name to address
        Values (or ``workspace of TASK``) whose residencies all have this address.
    """

    memory: int
    size: int
    alignment: int = 1
    reserved: tuple[tuple[int, int], ...] = ()
    fixed: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, eq=False)
class AddressTable:
    """Addresses of residencies in one or more memories.

    Attributes
    ----------
    arenas : tuple of Arena
        One for each memory that is laid out.
    memory : (rows,) int64
    value, task : (rows,) int64
        The value, or the task whose workspace it is; the other one is `NONE`.
    first, last : (rows,) int64
        The steps with which a residency begins and ends; `NONE` before the first step, the number of steps at the end.
    offset, size : (rows,) int64
    """

    arenas: tuple[Arena, ...]
    memory: IntArray
    value: IntArray
    task: IntArray
    first: IntArray
    last: IntArray
    offset: IntArray
    size: IntArray

    @property
    def columns(self) -> tuple[IntArray, ...]:
        """Memory, value, task, first, last, offset and size."""
        return self.memory, self.value, self.task, self.first, self.last, self.offset, self.size

    def of_memory(self, memory: int) -> AddressTable:
        """Return the rows and the arena of one memory."""
        mine = self.memory == memory
        arenas = tuple(arena for arena in self.arenas if arena.memory == memory)
        return AddressTable(arenas, *(column[mine] for column in self.columns))

    def merged(self, other: AddressTable | None) -> AddressTable:
        """Return these addresses, plus those of another table for memories that this table does not cover."""
        if other is None:
            return self
        own = {arena.memory for arena in self.arenas}
        kept = ~np.isin(other.memory, list(own))
        arenas = (*self.arenas, *(arena for arena in other.arenas if arena.memory not in own))
        pairs = zip(self.columns, other.columns, strict=True)
        columns = (np.concatenate((mine, theirs[kept])) for mine, theirs in pairs)
        return AddressTable(tuple(sorted(arenas, key=lambda arena: arena.memory)), *columns)


def arena_documents(table: AddressTable, machine: Machine) -> list[dict[str, Any]]:
    """Return the key `arenas` of a schedule document."""
    return [
        {
            "memory": machine.memories[arena.memory].name,
            "size": arena.size,
            **({"alignment": arena.alignment} if arena.alignment > 1 else {}),
            **({"reserved": [list(pair) for pair in arena.reserved]} if arena.reserved else {}),
            **({"fixed": dict(arena.fixed)} if arena.fixed else {}),
        }
        for arena in table.arenas
    ]


def address_lines(table: AddressTable, graph: TaskGraph, machine: Machine, steps: int) -> Iterator[str]:
    """Yield the key `addresses` of a schedule document, one line of JSON per row."""
    memories = [f', "memory": {json.dumps(memory.name, ensure_ascii=False)}' for memory in machine.memories]
    for memory, value, task, first, last, offset, size in zip(*(c.tolist() for c in table.columns), strict=True):
        kind, name = ("workspace", graph.tasks[task]) if value == NONE else ("value", graph.values[value])
        begin = "" if first == NONE else f', "first": {first}'
        end = "" if last == steps else f', "last": {last}'
        what = json.dumps(name, ensure_ascii=False)
        yield f'{{"{kind}": {what}{memories[memory]}{begin}{end}, "offset": {offset}, "size": {size}}}'


def read_addresses(document: Mapping[str, Any], graph: TaskGraph, machine: Machine, steps: int) -> AddressTable | None:
    """Read `arenas` and `addresses` of a schedule document with `steps` steps; None if it has none.

    Raises
    ------
    InstanceError
        For wrong types, unknown names, step numbers out of range, and memories without an arena.
    """
    if "arenas" not in document and "addresses" not in document:
        return None
    for key, other in (("arenas", "addresses"), ("addresses", "arenas")):
        if not isinstance(document.get(key), list):
            raise InstanceError(f"expected a list, since there are {other}", f"$.{key}")
    arenas = tuple(_arena(one, machine, f"$.arenas[{k}]") for k, one in enumerate(document["arenas"]))
    laid_out = {arena.memory for arena in arenas}
    if len(laid_out) < len(arenas):
        raise InstanceError("a memory has one arena", "$.arenas")
    reader = _RowReader(graph, machine, steps, laid_out)
    rows = [reader.row(one, f"$.addresses[{k}]") for k, one in enumerate(document["addresses"])]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 7).T
    return AddressTable(arenas, *(np.ascontiguousarray(column) for column in columns))


def _arena(given: Any, machine: Machine, path: str) -> Arena:
    if not isinstance(given, dict):
        raise InstanceError("an arena is a JSON object", path)
    alignment = _whole(given.get("alignment", 1), f"{path}.alignment")
    if alignment < 1 or alignment & (alignment - 1):
        raise InstanceError(f"{alignment} is not a power of two", f"{path}.alignment")
    reserved = []
    for pair in _listed(given.get("reserved", []), f"{path}.reserved"):
        ends = [_whole(address, f"{path}.reserved") for address in _listed(pair, f"{path}.reserved")]
        if len(ends) != 2 or ends[0] >= ends[1]:
            raise InstanceError(f"{brief(pair)} is not a range [from, to] of addresses", f"{path}.reserved")
        reserved.append((ends[0], ends[1]))
    fixed = given.get("fixed", {})
    if not isinstance(fixed, dict):
        raise InstanceError("expected an object: the name of a value -> its address", f"{path}.fixed")
    return Arena(
        memory=_memory(given.get("memory"), machine, path),
        size=_whole(given.get("size"), f"{path}.size"),
        alignment=alignment,
        reserved=tuple(reserved),
        fixed=tuple((name, _whole(address, f"{path}.fixed")) for name, address in fixed.items()),
    )


def _listed(given: Any, path: str) -> Iterable[Any]:
    if not isinstance(given, list):
        raise InstanceError(f"expected a list, not {brief(given)}", path)
    return given


def _whole(given: Any, path: str) -> int:
    if type(given) is not int or not 0 <= given <= LARGEST_SIZE:
        what = "the key is missing" if given is None else f"found {brief(given)}"
        raise InstanceError(f"expected a whole number from 0 to 2^62: {what}", path)
    return given


def _memory(given: Any, machine: Machine, path: str) -> int:
    index = machine.memory_index.get(given) if isinstance(given, str) else None
    if index is None:
        raise InstanceError(unknown_memory(given, machine.memory_index), f"{path}.memory")
    return index


class _RowReader:
    """Reads rows of `addresses`."""

    def __init__(self, graph: TaskGraph, machine: Machine, steps: int, laid_out: set[int]) -> None:
        self._graph, self._machine, self._steps, self._laid_out = graph, machine, steps, laid_out

    def row(self, given: Any, path: str) -> tuple[int, ...]:
        """Return memory, value, task, first, last, offset and size."""
        if not isinstance(given, dict):
            raise InstanceError("an address is a JSON object", path)
        if ("value" in given) == ("workspace" in given):
            raise InstanceError("an address has one of the keys value and workspace", path)
        value = task = NONE
        if "value" in given:
            value = self._found(self._graph.values, given["value"], "value", path)
        else:
            task = self._found(self._graph.tasks, given["workspace"], "task", path)
        memory = _memory(given.get("memory"), self._machine, path)
        if memory not in self._laid_out:
            raise InstanceError(f"there is no arena in {brief(given['memory'])}", f"{path}.memory")
        first = self._step(given["first"], f"{path}.first") if "first" in given else NONE
        last = self._step(given["last"], f"{path}.last") if "last" in given else self._steps
        offset, size = (_whole(given.get(key), f"{path}.{key}") for key in ("offset", "size"))
        return memory, value, task, first, last, offset, size

    def _found(self, names: Names, name: Any, what: str, path: str) -> int:
        index = names.find(name) if isinstance(name, str) else None
        if index is None:
            raise InstanceError(f"unknown {what} {brief(name)}", path)
        return index

    def _step(self, given: Any, path: str) -> int:
        if type(given) is not int or not 0 <= given < self._steps:
            raise InstanceError(f"expected the index of one of {self._steps} steps, not {brief(given)}", path)
        return given
