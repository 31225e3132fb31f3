"""Times of operators, from a device's roofline or from measurements, and bytes that are always resident."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from math import ceil, prod
from pathlib import Path
from typing import Any

from remat.bridges.torch.recording import Node, Recording, Role
from remat.documents import read_document
from remat.errors import InstanceError, OptionError
from remat.generate.devices import devices, rates_in

DEFAULT = "roofline:A100-fp32"
SCHEMA = "remat.costs/1"
OPTIMIZER_SCHEMA = "remat.optimizer/1"
STATES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}
"""Tensors as large as a parameter that an optimizer keeps for it."""


@dataclass(frozen=True)
class Optimizer:
    """Memory that an optimizer keeps for trained parameters.

    Attributes
    ----------
    states : float
        Tensors of a parameter's own size and type.
    bytes_per_element : float
        Bytes for each element of a parameter, of whatever type: 4 for a copy in full precision, 2 for two states in
        eight bits.
    fixed : int
        Additional bytes, independent of the parameters.
    """

    states: float = 0
    bytes_per_element: float = 0
    fixed: int = 0

    def bytes(self, size: int, elements: int) -> int:
        """Bytes for parameters of so many bytes and elements, rounded up."""
        return ceil(self.states * size + self.bytes_per_element * elements) + self.fixed


def read_optimizer(optimizer: str | None) -> Optimizer:
    """Read an optimizer: a known name, or a file of schema `remat.optimizer/1` (``.gz`` too).

    Raises
    ------
    OptionError
        For a name that is neither known nor a file.
    InstanceError
        For a file that says something else.
    """
    if optimizer is None:
        return Optimizer()
    if optimizer in STATES:
        return Optimizer(STATES[optimizer])
    if not Path(optimizer).is_file():
        raise OptionError(f"there is no {optimizer!r}; known are {', '.join(STATES)}, and files", argument="optimizer")
    document = read_document(optimizer)
    if document.get("schema") != OPTIMIZER_SCHEMA:
        found = document.get("schema")
        raise InstanceError(f"{optimizer}: expected an optimizer ({OPTIMIZER_SCHEMA}), not {found!r}", "$.schema")
    known = Optimizer.__dataclass_fields__
    for name, value in document.items():
        if name not in ("schema", *known):
            raise InstanceError(f"{optimizer}: unknown; known are {', '.join(known)}", f"$.{name}")
        if name in known and (isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or value < 0):
            raise InstanceError(f"{optimizer}: expected a number that is not negative, not {value!r}", f"$.{name}")
    return Optimizer(
        float(document.get("states", 0)), float(document.get("bytes_per_element", 0)), int(document.get("fixed", 0))
    )


@dataclass(frozen=True)
class Costs:
    """Time and workspace of operators.

    Attributes
    ----------
    source : str
        Origin of the times.
    rate, bandwidth : float
        Of a roofline: operations and bytes per second.
    measured : mapping of str to (microseconds, bytes)
        By the text of an operator (its arguments, shapes and types), time and workspace; the roofline answers for
        others.
    """

    source: str
    rate: float = 19.5e12
    bandwidth: float = 1.555e12
    measured: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def time(self, node: Node, *, from_mask: bool = False) -> int:
        """Whole microseconds of one run, at least 1."""
        known = None if from_mask else self.measured.get(key_of(node))
        if known is not None:
            return max(1, known[0])
        seconds = max(node.flops / self.rate, node.moved / self.bandwidth)
        return max(1, round(seconds * 1e6))

    def workspace(self, node: Node) -> int:
        """Bytes needed in addition to reads and writes; 0 if not measured."""
        return self.measured.get(key_of(node), (0, 0))[1]

    def time_of_bytes(self, moved: int) -> float:
        """Microseconds in which a kernel that computes little reads and writes so many bytes."""
        return moved / self._fastest * 1e6

    def beyond_bytes(self, node: Node) -> float:
        """Microseconds of a run beyond those of reading and writing."""
        known = self.measured.get(key_of(node))
        whole = node.flops / self.rate * 1e6 if known is None else known[0]
        return max(0.0, whole - self.time_of_bytes(node.moved))

    @cached_property
    def _fastest(self) -> float:
        """Bytes per second: the roofline's, or those of the fastest operator that moves megabytes."""
        moved = ((int(key.split()[-2]), time) for key, (time, _) in self.measured.items() if key.endswith(" 0"))
        return max((size / time * 1e6 for size, time in moved if size >= 1 << 20), default=self.bandwidth)


def key_of(node: Node) -> str:
    """Return a key of everything that an operator's time depends on, independent of node and storage numbers."""
    import re

    shapes = ", ".join("-" if held is None else f"{held.dtype}{list(held.shape)}" for held in node.tensors)
    return f"{node.operator}{re.sub('#[0-9]+', '#', node.arguments)} -> {shapes} / {node.moved} {node.flops}"


def read_costs(costs: str | Costs | Mapping[str, Any] | None) -> Costs:
    """Read costs in any spelling.

    Parameters
    ----------
    costs : str, Costs, mapping or None
        ``roofline:DEVICE[-DTYPE]`` with a shipped device or a file of devices (``roofline:my.json#NAME-bf16``), a file
        of measured costs, its document, or None for ``roofline:A100-fp32``.
    """
    if isinstance(costs, Costs):
        return costs
    if costs is None:
        costs = DEFAULT
    if isinstance(costs, str) and costs.startswith("roofline:"):
        return _roofline(costs)
    document = costs if isinstance(costs, Mapping) else read_document(costs)
    return _measured(document)


def _roofline(text: str) -> Costs:
    named = text.removeprefix("roofline:")
    table = devices()
    if "#" in named:
        path, _, named = named.rpartition("#")
        table = read_document(path).get("devices", {})
    device, dtype = (named, "fp32") if named in table else named.rpartition("-")[::2]
    found = rates_in(table, device if device in table else named, dtype, argument="costs")
    return Costs(f"roofline:{device}-{dtype}", found.flops, found.bandwidth)


def _measured(document: Mapping[str, Any]) -> Costs:
    if document.get("schema") != SCHEMA:
        raise InstanceError(f"expected measured costs ({SCHEMA}), not {document.get('schema')!r}", "$.schema")
    base = _roofline(document.get("otherwise", DEFAULT))
    measured = {key: (int(time), int(workspace)) for key, (time, workspace) in document["operators"].items()}
    return Costs(f"measured on {document.get('device', '?')}", base.rate, base.bandwidth, measured)


def costs_document(device: str, measured: Mapping[str, tuple[int, int]], otherwise: str = DEFAULT) -> dict[str, Any]:
    """Return measured costs as a document that `read_costs` reads."""
    return {
        "schema": SCHEMA,
        "device": device,
        "otherwise": otherwise,
        "operators": {key: list(entry) for key, entry in measured.items()},
    }


def static_bytes(recording: Recording, optimizer: str | None = None) -> dict[str, int]:
    """Break down resident bytes: parameters, buffers, inputs, constants and the optimizer's states."""
    keeps = read_optimizer(optimizer)
    split = {"parameter": 0, "buffer": 0, "input": 0, "constant": 0}
    seen: set[int] = set()
    trained = elements = 0
    inputs = [node for node in recording.nodes if node.role is Role.INPUT]
    gradients = dict(zip((node.name for node in inputs), recording.gradients, strict=False))
    for node in recording.nodes:
        if node.role not in (Role.INPUT, Role.CONSTANT):
            continue
        for held in node.tensors:
            if held is not None and held.storage not in seen:
                seen.add(held.storage)
                size = recording.storages[held.storage]
                split[node.operator if node.operator in split else "constant"] += size
                if node.operator == "parameter" and gradients.get(node.name) is not None:
                    trained += size
                    elements += prod(held.shape)
    split["optimizer"] = keeps.bytes(trained, elements)
    return split
