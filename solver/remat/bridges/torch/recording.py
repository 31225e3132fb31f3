"""Record of a joint graph: operators, arguments, shapes and aliasing, independent of tensors and PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import Any

from remat.errors import RematError

SCHEMA = "remat.joint/1"


OPAQUE = "opaque"
"""An input that is not a tensor, for example a mesh of devices."""
COLLECTIVES = "_c10d_functional."
"""Operators that exchange tensors between processes."""
WAIT = "_c10d_functional.wait_tensor.default"
"""Waits until a tensor that a collective returned is there; it returns this tensor."""


class TorchError(RematError):
    """A program cannot be captured, or a plan cannot be executed; the message gives the reason."""


class Role(StrEnum):
    """The role of a node in the joint graph; a SIZE is a number, not a tensor."""

    INPUT = "input"
    TANGENT = "tangent"
    CONSTANT = "constant"
    CALL = "call"
    ITEM = "item"
    SIZE = "size"


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor: its storage, its shape and its type."""

    storage: int
    shape: tuple[int, ...] = ()
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the joint graph.

    Attributes
    ----------
    name : str
        Unique in its graph; another release of PyTorch may name it otherwise.
    role : Role
    operator : str
        ``aten.mm.default``; for inputs their kind: ``parameter``, ``buffer``, ``input``, or ``size``.
    arguments : str
        All arguments as text, nodes as ``#`` and their index.
    inputs : tuple of str
        Nodes that it reads.
    tensors : tuple of Held or None
        Its results, element by element.
    several : bool
        Whether it returns a tuple or a list.
    item : int
        For an ITEM: its index in the result of its single input.
    random : bool
        Whether it draws random numbers.
    mutates : tuple of str
        Inputs into which it writes.
    effect : bool
        Whether it has side effects.
    statistics : tuple of str
        Inputs on which only the results `renewed` depend: the running statistics of batch normalisation in training.
    renewed : tuple of int
        Items that are the new statistics.
    dropout : float or None
        For dropout: the share that it drops.
    backward : bool
        Whether PyTorch made it for the backward.
    module, source : str
        The module and the line of the user's code from which it comes.
    flops, moved : int
        Operations, and bytes read and written, of one run.
    """

    name: str
    role: Role
    operator: str = ""
    arguments: str = ""
    inputs: tuple[str, ...] = ()
    tensors: tuple[Held | None, ...] = ()
    several: bool = False
    item: int = 0
    random: bool = False
    mutates: tuple[str, ...] = ()
    effect: bool = False
    statistics: tuple[str, ...] = ()
    renewed: tuple[int, ...] = ()
    dropout: float | None = None
    backward: bool = False
    module: str = ""
    source: str = ""
    flops: int = 0
    moved: int = 0

    @property
    def collective(self) -> bool:
        """Whether it exchanges tensors with other processes, which must run it as well."""
        return self.operator.startswith(COLLECTIVES) and self.operator != WAIT

    @property
    def line(self) -> str:
        """The part that enters the fingerprint: without name, source and cost."""
        returned = ", ".join(
            "-" if held is None else f"{held.dtype}{list(held.shape)}@{held.storage}" for held in self.tensors
        )
        # Whether an input is a parameter or an argument is known to some captures only, and the operators are the same.
        operator = "" if self.role is Role.INPUT else self.operator
        return f"{self.role} {operator}({self.arguments}) -> {returned}"


_DEFAULTS = {field.name: field.default for field in fields(Node)}


@dataclass(frozen=True)
class Recording:
    """A joint graph, which computes loss and gradients together.

    Attributes
    ----------
    nodes : tuple of Node
        In an order in which they can run.
    storages : tuple of int
        Bytes of each storage.
    outputs, gradients : tuple of str or None
        Nodes that the forward returns, and those that the backward returns, one for each input.
    """

    nodes: tuple[Node, ...]
    storages: tuple[int, ...]
    outputs: tuple[str | None, ...]
    gradients: tuple[str | None, ...]

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """A text for each node; equal texts are equal programs."""
        place = {node.name: index for index, node in enumerate(self.nodes)}
        ends = [" ".join("-" if name is None else f"#{place[name]}" for name in ends) for ends in self._ends]
        sizes = ",".join(map(str, self.storages))
        return (*(node.line for node in self.nodes), f"returns {' | '.join(ends)}", f"storages {sizes}")

    @property
    def _ends(self) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
        return self.outputs, self.gradients

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over operators, arguments, shapes and aliasing."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    def to_document(self) -> dict[str, Any]:
        """Return the recording as a JSON document."""
        return {
            "schema": SCHEMA,
            "nodes": [_node_document(node) for node in self.nodes],
            "storages": list(self.storages),
            "outputs": list(self.outputs),
            "gradients": list(self.gradients),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Recording:
        """Read a document of `to_document`."""
        if document.get("schema") != SCHEMA:
            raise TorchError(f"expected a recorded joint graph ({SCHEMA}), not {document.get('schema')!r}")
        return cls(
            tuple(_node_from(entry) for entry in document["nodes"]),
            tuple(document["storages"]),
            tuple(document["outputs"]),
            tuple(document["gradients"]),
        )


def _node_document(node: Node) -> dict[str, Any]:
    entry = {key: value for key, value in asdict(node).items() if value != _DEFAULTS[key]}
    if "tensors" in entry:
        entry["tensors"] = [None if held is None else [held.storage, held.shape, held.dtype] for held in node.tensors]
    return entry


def _node_from(entry: Mapping[str, Any]) -> Node:
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    given["role"] = Role(entry["role"])
    given["tensors"] = tuple(
        None if held is None else Held(held[0], tuple(held[1]), held[2]) for held in entry.get("tensors", ())
    )
    return Node(**given)


def first_difference(mine: Recording, lines: tuple[str, ...]) -> str:
    """Name the first operator in which a program differs from the program with these line digests."""
    for index, (line, other) in enumerate(zip(digests(mine.lines), lines, strict=False)):
        if line != other:
            here = mine.nodes[index] if index < len(mine.nodes) else None
            shown = "what it returns" if here is None else _shown(here)
            return f"operator {index}: here {shown}, in the plan {other.rpartition(' ')[0] or 'another'}"
    return f"{len(mine.lines)} operators here, {len(lines)} in the plan"


def _shown(node: Node) -> str:
    first = next((held for held in node.tensors if held is not None), None)
    returned = "" if first is None else f" -> {first.dtype}{list(first.shape)}"
    return f"{node.operator or node.role} ({node.source or node.name}){returned}"


def digests(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Shorten each line to its operator and eight digits."""
    return tuple(
        f"{line.split('(')[0].removeprefix('call ')} {hashlib.sha256(line.encode()).hexdigest()[:8]}" for line in lines
    )
