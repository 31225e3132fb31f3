"""Operators of a Chakra execution trace become tasks, and their storages values.

Operators that call no others are tasks. A storage is a value; an operator whose schema says that it writes an input
(``!``) makes a new version of it in place. An output in the storage of an input is a view, and no value. An output in a
known storage that is no input is a new value: the storage has been used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remat.bridges.allocations.streaming import stream_objects
from remat.errors import InstanceError, OptionError
from remat.messages import brief
from remat.units import LARGEST_SIZE

MOST_TENSORS = 100_000
"""Tensors of one operator."""


class _Tensor(NamedTuple):
    """A tensor in a trace."""

    storage: int
    size: int
    device: str


class _Node(NamedTuple):
    """An operator: its name, reads and writes, its time in microseconds, and whether it writes its inputs."""

    key: int
    name: str
    reads: tuple[_Tensor, ...]
    writes: tuple[_Tensor, ...]
    time: float | None
    mutates: bool


def import_trace(
    path: str, *, name: str | None = None, device: str | None = None, default_time: float | None = None
) -> dict[str, Any]:
    """Make a task graph of an execution trace.

    Parameters
    ----------
    path : str
        JSON, compressed or not.
    name : str, optional
        Default: ``chakra``.
    device : str, optional
        Whose tensors count, such as ``cuda:0``; default: the device with the most bytes.
    default_time : float, optional
        Microseconds of operators whose trace has no duration; without it they are refused.

    Returns
    -------
    dict
        An instance of kind ``dag``, in microseconds and bytes.

    Raises
    ------
    InstanceError
        If the file is not an execution trace or has no tensors; the message has the node.
    OptionError
        For a device that the trace does not have.
    """
    nodes, parents = [], set[int]()
    for number, given in enumerate(stream_objects(path, "nodes", whole=False)):
        try:
            parents.update(_parents(given))
            node = _node(given)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            raise InstanceError(
                f"{path}: node {number}: {brief(str(given.get('name')))} is malformed: {error!r}"
            ) from None
        if node.reads or node.writes:
            nodes.append(node)
    leaves = sorted((node for node in nodes if node.key not in parents), key=lambda node: node.key)
    chosen = _device(leaves, device, path)
    graph = _Graph(path, default_time)
    for node in leaves:
        graph.add(node, chosen)
    if not graph.tasks:
        raise InstanceError(f"{path}: no operator has tensors on {chosen}")
    return graph.document(name or "chakra", f"imported by: remat import chakra {path}", chosen)


def _parents(given: dict[str, Any]) -> list[int]:
    found = given.get("ctrl_deps", given.get("parent", []))
    return [int(found)] if isinstance(found, (int, str)) else [int(each) for each in found]


def _node(given: dict[str, Any]) -> _Node:
    attributes = {entry["name"]: entry.get("value") for entry in given.get("attrs", [])}
    schema = str(given.get("op_schema", attributes.get("op_schema", "")))
    time = given.get("duration_micros", attributes.get("duration_micros", given.get("dur")))
    inputs, outputs = given.get("inputs", {}), given.get("outputs", {})
    if time is not None and not 0 <= float(time) < 2.0**60:
        raise ValueError("a duration out of range")
    return _Node(
        int(given["id"]),
        str(given.get("name", "?"))[:200],
        tuple(_tensors(inputs)),
        tuple(_tensors(outputs)),
        None if time is None else float(time),
        "!" in schema,
    )


def _tensors(given: Any) -> Iterator[_Tensor]:
    """Yield the tensors of inputs or outputs, lists of tensors flattened."""
    if not isinstance(given, dict):
        raise TypeError("inputs and outputs are objects with values and types")
    found = 0
    stack = [(value, str(kind)) for value, kind in zip(given.get("values", []), given.get("types", []), strict=False)]
    for value, kind in stack:
        if not isinstance(value, list):
            continue
        if kind.startswith("Tensor(") and len(value) == 6:
            _, storage, offset, count, element, device = value
            size = (int(offset) + int(count)) * int(element)
            if not 0 <= size <= LARGEST_SIZE:
                raise ValueError("a tensor of more than 2^62 bytes")
            found += 1
            if found > MOST_TENSORS:
                raise ValueError(f"more than {MOST_TENSORS:,} tensors")
            if size:
                yield _Tensor(int(storage), size, str(device))
        elif kind.startswith("GenericList["):
            inner = [each.strip() for each in kind[len("GenericList[") : -1].split(",")]
            stack.extend(zip(value, inner, strict=False))


def _device(nodes: list[_Node], device: str | None, path: str) -> str:
    sums: dict[str, int] = {}
    for node in nodes:
        for tensor in (*node.reads, *node.writes):
            sums[tensor.device] = sums.get(tensor.device, 0) + tensor.size
    if not sums:
        raise InstanceError(f"{path}: no operator has tensors")
    if device is None:
        return max(sums, key=lambda each: sums[each])
    if device not in sums:
        raise OptionError(f"the trace has tensors on {', '.join(sums)}, not on {brief(device)}", argument="device")
    return device


@dataclass
class _Graph:
    """Tasks and values in the making."""

    path: str
    default_time: float | None
    tasks: list[dict[str, Any]] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    current: dict[int, str] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def add(self, node: _Node, device: str) -> None:
        """Append the task of an operator."""
        reads = {tensor.storage: tensor.size for tensor in node.reads if tensor.device == device}
        writes = {tensor.storage: tensor.size for tensor in node.writes if tensor.device == device}
        if not (reads or writes):
            return
        if node.time is None and self.default_time is None:
            raise InstanceError(
                f"{self.path}: node {node.key} ({brief(node.name)}) has no duration; give a default time, "
                "or a trace with durations"
            )
        own = [self._known(storage, size) for storage, size in reads.items()]
        made: list[str] = []
        for storage, size in writes.items():
            if storage not in reads:
                made.append(self._fresh(storage, size))
            elif node.mutates:
                made.append(self._fresh(storage, max(size, reads[storage], self.sizes[self.current[storage]])))
            else:  # a view
                value = self.current[storage]
                self.sizes[value] = max(self.sizes[value], size)
        self.read.update(own)
        task: dict[str, Any] = {
            "id": f"{node.key}:{node.name}",
            "time": self.default_time if node.time is None else node.time,
        }
        task |= {"reads": own, "writes": made}
        self.tasks.append(task | ({"in_place": True} if node.mutates and made else {}))

    def _known(self, storage: int, size: int) -> str:
        if storage not in self.current:
            self.inputs.append(self._fresh(storage, size))
        value = self.current[storage]
        self.sizes[value] = max(self.sizes[value], size)
        return value

    def _fresh(self, storage: int, size: int) -> str:
        version = self.versions[storage] = self.versions.get(storage, 0) + 1
        name = f"s{storage}" + (f".{version}" if version > 1 else "")
        self.current[storage] = name
        self.sizes[name] = size
        return name

    def document(self, name: str, source: str, device: str) -> dict[str, Any]:
        """Return the instance."""
        written = {value for task in self.tasks for value in task["writes"]}
        outputs = [value for value in self.sizes if value in written and value not in self.read]
        return {
            "schema": "remat.instance/1",
            "kind": "dag",
            "name": name,
            "description": f"{len(self.tasks):,} operators of an execution trace, tensors on {device}",
            "source": source,
            "units": {"time": "us", "memory": "B"},
            "values": [{"id": value, "size": size} for value, size in self.sizes.items()],
            "tasks": self.tasks,
            "inputs": self.inputs,
            "outputs": outputs,
        }
