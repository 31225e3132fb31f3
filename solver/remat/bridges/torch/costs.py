"""Times of operators, from a device's roofline or from measurements, and bytes that are always resident."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from remat.bridges.torch.joint import FROM_MASK
from remat.bridges.torch.optimizers import Trained, read_optimizer
from remat.bridges.torch.recording import Held, Node, Recording, Role
from remat.documents import read_document
from remat.errors import InstanceError
from remat.generate.devices import devices, rates_in
from remat.messages import brief

DEFAULT = "roofline:A100-fp32"
SCHEMA = "remat.costs/1"


@dataclass(frozen=True)
class Costs:
    """Time and workspace of operators.

    Attributes
    ----------
    source : str
        Origin of the times.
    rate, bandwidth : float
        Operations and bytes per second of a roofline.
    measured : mapping of str to (microseconds, bytes)
        Time and workspace by the text of an operator (its arguments, shapes and types); the roofline covers all
        others. Dropout from its mask has a separate entry.
    """

    source: str
    rate: float = 19.5e12
    bandwidth: float = 1.555e12
    measured: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def time(self, node: Node, *, from_mask: bool = False) -> int:
        """Whole microseconds of one run, at least 1."""
        known = self.measured.get(key_of(node, from_mask=from_mask))
        if known is not None:
            return max(1, known[0])
        seconds = max(node.flops / self.rate, node.moved / self.bandwidth)
        return max(1, round(seconds * 1e6))

    def workspace(self, node: Node) -> int:
        """Bytes needed in addition to reads and writes; 0 if not measured."""
        return self.measured.get(key_of(node), (0, 0))[1]

    def time_of_bytes(self, moved: int) -> float:
        """Microseconds in which a kernel with few operations reads and writes a number of bytes."""
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


def key_of(node: Node, *, from_mask: bool = False) -> str:
    """Return a key of everything that an operator's time depends on, independent of node and storage numbers."""
    import re

    shapes = ", ".join("-" if held is None else f"{held.dtype}{list(held.shape)}" for held in node.tensors)
    text = f"{node.operator}{re.sub('#[0-9]+', '#', node.arguments)} -> {shapes} / {node.moved} {node.flops}"
    return f"{text}{FROM_MASK}" if from_mask else text


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
    listed = document.get("operators")
    if not isinstance(listed, Mapping):
        raise InstanceError("expected an object with an entry for each operator", "$.operators")
    for key, entry in listed.items():
        if not _is_entry(entry):
            raise InstanceError(f"expected [microseconds, bytes], not {brief(entry)}", f"$.operators[{brief(key)}]")
    measured = {key: (int(time), int(workspace)) for key, (time, workspace) in listed.items()}
    return Costs(f"measured on {document.get('device', '?')}", base.rate, base.bandwidth, measured)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, list | tuple) or len(entry) != 2:
        return False
    return all(isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one < math.inf for one in entry)


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
    split = {"parameter": 0, "buffer": 0, "input": 0, "constant": 0}
    for node, held in _resident(recording):
        split[node.operator if node.operator in split else "constant"] += recording.storages[held.storage]
    split["optimizer"] = read_optimizer(optimizer).state_bytes(trained_of(recording))
    return split


def trained_of(recording: Recording, order: Sequence[int] = ()) -> list[Trained]:
    """Return the parameters that get a gradient, in the order in which the optimizer has them.

    Parameters
    ----------
    recording : Recording
    order : sequence of int
        For each input of the graph, its place among the module's parameters; in the order of the graph if empty.
    """
    inputs = [node for node in recording.nodes if node.role is Role.INPUT]
    gradients = dict(zip((node.name for node in inputs), recording.gradients, strict=False))
    places = {node.name: place for node, place in zip(inputs, order, strict=False)}
    found = [
        (places.get(node.name, len(places)), Trained(recording.storages[held.storage], held.shape))
        for node, held in _resident(recording)
        if node.operator == "parameter" and gradients.get(node.name) is not None
    ]
    return [tensor for _, tensor in sorted(found, key=lambda entry: entry[0])]


def _resident(recording: Recording) -> Iterator[tuple[Node, Held]]:
    """Yield inputs and constants, each storage once."""
    seen: set[int] = set()
    for node in recording.nodes:
        for held in node.tensors if node.role in (Role.INPUT, Role.CONSTANT) else ():
            if held is not None and held.storage not in seen:
                seen.add(held.storage)
                yield node, held
