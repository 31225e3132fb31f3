"""Orders of a pipeline: for each device, a list of operations of stages and micro-batches.

An *operation* is a unit of a device's work: the forward (F) or backward (B) of a stage for one micro-batch. If layers
give a `weight_time`, the backward has two halves, the gradient of the input (B) and of the parameters (W), which run
separately or together (BW). As text it is ``F2.0``: stage 2, micro-batch 0, both counted from 0. A device may run a
forward and a backward simultaneously, a *pair*: ``F2.0&BW5.3``. Recomputed layers of a stage run their forwards within
its backward, or ahead of it (R; see `remat.schedule.recompute`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from remat.errors import InstanceError, MissingLinkError
from remat.graph.machine import Link, Machine
from remat.graph.taskgraph import BoolArray, IntArray, Ragged, TaskGraph
from remat.instance.fields import LARGEST_COUNT
from remat.instance.kinds import is_pipeline
from remat.instance.tensor import Degree
from remat.messages import brief
from remat.schedule.document import read_head
from remat.schedule.recompute import Segment, Segments, read_recompute, recompute_document, segments_of
from remat.units import Number

if TYPE_CHECKING:
    from remat.instance import Instance, PipelineInstance


class Phase(IntEnum):
    """Kind of an operation."""

    F = 0
    B = 1
    W = 2
    BW = 3
    R = 4


class Pass(NamedTuple):
    """One operation of a pipeline: phase, stage and micro-batch (both counted from 0)."""

    phase: Phase
    stage: int
    batch: int

    def __str__(self) -> str:
        return f"{self.phase.name}{self.stage}.{self.batch}"


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers (counted from 0, in order) that one device runs as a unit.

    Several stages on different devices may hold the same layers: each micro-batch passes one of them. Or `of` of them
    share each micro-batch, and this one runs part number `part`. `recompute` lists recomputed layers. With a
    `tensor` degree above 1, that many neighbouring devices run the layers together: `device` is the first of them.
    """

    layers: tuple[int, ...]
    device: int
    part: int = 0
    of: int = 1
    recompute: tuple[Segment, ...] = ()
    tensor: int = 1

    @property
    def devices(self) -> range:
        """The devices that run it."""
        return range(self.device, self.device + self.tensor)


@dataclass(frozen=True)
class Orders:
    """Stages, and the ordered operations of each device.

    Attributes
    ----------
    stages : tuple of Stage
    lists : tuple of tuple of Pass
        One list per processor, in the machine's order; empty for idle processors.
    paired : tuple of frozenset of int
        For each list, the operations that run simultaneously with their predecessor; empty if none does.
    """

    stages: tuple[Stage, ...]
    lists: tuple[tuple[Pass, ...], ...]
    paired: tuple[frozenset[int], ...] = ()

    def __len__(self) -> int:
        return sum(len(operations) for operations in self.lists)

    @property
    def largest_group(self) -> int:
        """Maximum number of devices that run a stage together."""
        return max((stage.tensor for stage in self.stages), default=1)

    @cached_property
    def columns(self) -> IntArray:
        """Device, phase, stage and micro-batch of all operations, device by device: shape (4, operations)."""
        counts = [len(operations) for operations in self.lists]
        found = np.empty((4, sum(counts)), dtype=np.int64)
        found[0] = np.repeat(np.arange(len(counts)), counts)
        for column in range(3):
            listed = (operation[column] for operations in self.lists for operation in operations)
            found[column + 1] = np.fromiter(listed, dtype=np.int64, count=found.shape[1])
        return found

    @cached_property
    def ahead(self) -> frozenset[tuple[int, int]]:
        """Stage and micro-batch of all recomputations ahead of their backward."""
        _, phase, stage, batch = self.columns
        mine = phase == Phase.R
        return frozenset(zip(stage[mine].tolist(), batch[mine].tolist(), strict=True))

    def again(self, operation: Pass) -> Segments:
        """Return the segments that are recomputed within an operation."""
        phase, stage, batch = operation
        recompute = self.stages[stage].recompute
        if not recompute or phase in (Phase.F, Phase.W) or (phase != Phase.R and (stage, batch) in self.ahead):
            return ()
        return segments_of(recompute, batch)

    @cached_property
    def units(self) -> Ragged:
        """Units of each device, in order: single operations (as in `columns`) or pairs."""
        count = len(self)
        joined = np.zeros(count, dtype=bool)
        first = 0
        for operations, own in zip(self.lists, self.paired, strict=False):
            joined[[first + index for index in own]] = True
            first += len(operations)
        return Ragged(np.append(np.flatnonzero(~joined), count), np.arange(count))

    def listed(self, device: int) -> list[tuple[Pass, ...]]:
        """Return the units of a device, in order: single operations or pairs."""
        own = self.paired[device] if self.paired else frozenset[int]()
        found: list[tuple[Pass, ...]] = []
        for index, operation in enumerate(self.lists[device]):
            if index in own:
                found[-1] += (operation,)
            else:
                found.append((operation,))
        return found

    def to_document(self, devices: Sequence[str]) -> dict[str, Any]:
        """Return the keys `stages` and `orders` of a `remat.schedule/2` document."""
        return {
            "stages": stages_document(self.stages, devices),
            "orders": {
                devices[index]: ["&".join(map(str, pair)) for pair in self.listed(index)]
                for index, operations in enumerate(self.lists)
                if operations
            },
        }


@dataclass(frozen=True)
class PipelineTasks:
    """Task indices of a lowered pipeline: all forwards, all backwards, all second halves, layer by layer.

    Attributes
    ----------
    layers, batches : int
    weight : (layers,) int64
        The group of each layer's W among the second halves; -1 if its backward is whole.
    parts : (layers,) int64
        Number of devices that share each micro-batch of a layer, and thus of tasks per micro-batch.
    degrees : tuple of Degree
        How layers are shared, from `degrees_of`.
    """

    layers: int
    batches: int
    weight: IntArray
    parts: IntArray
    degrees: tuple[Degree, ...] = ()

    @cached_property
    def _start(self) -> IntArray:
        """The first task of each group."""
        halves = self.parts[self.weight >= 0]
        return np.concatenate(([0], np.cumsum(self.batches * np.concatenate((self.parts, self.parts, halves)))))

    def first(self, phase: Phase, layer: int) -> int:
        """Return the first task of a layer's forwards, backwards (B) or second halves (W)."""
        group = {Phase.F: layer, Phase.B: self.layers + layer}.get(phase, 2 * self.layers + int(self.weight[layer]))
        return int(self._start[group])

    def of(self, operation: Pass, stage: Stage, again: Segments = ()) -> list[int]:
        """Return the tasks of an operation on a stage, in execution order, including recomputed segments."""
        phase, _, batch = operation
        number, layers = batch * stage.of + stage.part, stage.layers
        if phase in (Phase.F, Phase.R):
            chosen = layers if phase is Phase.F else (layer for segment in again for layer in segment)
            return [self.first(Phase.F, layer) + number for layer in chosen]
        found: list[int] = []
        if phase in (Phase.B, Phase.BW):
            before = {segment[-1]: segment for segment in again}
            for layer in reversed(layers):
                found += [self.first(Phase.F, other) + number for other in before.get(layer, ())]
                found.append(self.first(Phase.B, layer) + number)
        if phase in (Phase.W, Phase.BW):
            found += [self.first(Phase.W, layer) + number for layer in reversed(layers) if self.weight[layer] >= 0]
        return found

    def of_all(self, orders: Orders) -> Ragged:
        """Return the tasks of all operations, in the order of `Orders.columns`."""
        _, phase, stage, batch = orders.columns
        counts = np.zeros(len(phase), dtype=np.int64)
        parts: list[tuple[IntArray, IntArray]] = []
        ways, of_way = self._ways(orders)
        order = np.lexsort((of_way, stage, phase))
        code = (phase[order] * len(orders.stages) + stage[order]) * len(ways) + of_way[order]
        bounds = np.flatnonzero(np.diff(code, prepend=-1, append=-1))
        for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            mine = order[first:end]
            own = orders.stages[int(stage[mine[0]])]
            # Tasks of micro-batch 0, and of all others that many further on.
            begin = self.of(Pass(Phase(int(phase[mine[0]])), 0, 0), own, ways[int(of_way[mine[0]])])
            counts[mine] = len(begin)
            parts.append((mine, own.of * batch[mine][:, None] + np.array(begin, dtype=np.int64)))
        start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
        items = np.empty(int(start[-1]), dtype=np.int64)
        for mine, tasks in parts:
            items[start[mine][:, None] + np.arange(tasks.shape[1])] = tasks
        return Ragged(start, items)

    def _ways(self, orders: Orders) -> tuple[list[Segments], IntArray]:
        """Return the distinct sets of recomputed segments, and the set of each operation."""
        ways: dict[Segments, int] = {(): 0}
        found = np.zeros(len(orders), dtype=np.int64)
        if any(stage.recompute for stage in orders.stages):
            listed = (operation for operations in orders.lists for operation in operations)
            for index, operation in enumerate(listed):
                found[index] = ways.setdefault(orders.again(operation), len(ways))
        return list(ways), found

    def of_units(self, orders: Orders) -> tuple[Ragged, BoolArray]:
        """Return the tasks of all units, and which of them run simultaneously with their predecessor.

        In a pair, forward and backward layers are matched one by one until either runs out.
        """
        parts, units = self.of_all(orders), orders.units
        if len(units) == len(parts):
            return parts, np.zeros(len(parts.items), dtype=bool)
        rows: list[list[int]] = []
        beside: list[bool] = []
        listed, phases = parts.to_lists(), orders.columns[1].tolist()
        for unit in units.to_lists():
            tasks = listed[unit[0]]
            together = [False] * len(tasks)
            if len(unit) > 1:
                tasks, together = _woven(tasks, listed[unit[1]], self._firsts(phases[unit[1]], listed[unit[1]]))
            rows.append(tasks)
            beside += together
        return Ragged.from_lists(rows), np.array(beside, dtype=bool)

    def _firsts(self, phase: int, tasks: list[int]) -> int:
        """Return the number of a backward's tasks that are not second halves."""
        firsts = int(self._start[2 * self.layers])
        return sum(task < firsts for task in tasks) if phase == Phase.BW else len(tasks)


def _woven(forward: list[int], backward: list[int], first: int) -> tuple[list[int], list[bool]]:
    """Interleave the tasks of a pair: forwards run simultaneously with the first `first` backwards."""
    tasks: list[int] = []
    together: list[bool] = []
    both = min(len(forward), first)
    for one, other in zip(forward[:both], backward[:both], strict=True):
        tasks += [one, other]
        together += [False, True]
    rest = forward[both:] + backward[both:]
    return tasks + rest, together + [False] * len(rest)


def tasks_of(instance: PipelineInstance, degrees: Sequence[Degree] = ()) -> PipelineTasks:
    """Return the task indices of an instance; `degrees` as in `remat.instance.lowering.lower`."""
    split = np.array([layer.is_split for layer in instance.each_layer()], dtype=bool)
    weight = np.where(split, np.cumsum(split) - 1, -1)
    parts = np.ones(len(split), dtype=np.int64)
    if degrees:
        parts = np.array([degree.parts for degree in degrees], dtype=np.int64)
    return PipelineTasks(len(split), instance.micro_batches, weight, parts, tuple(degrees))


def degrees_of(instance: PipelineInstance, machine: Machine, stages: Sequence[Stage]) -> tuple[Degree, ...]:
    """Return, for each layer, how devices share every micro-batch; empty if none is shared.

    Raises
    ------
    InstanceError
        If stages share a layer differently, or with a degree that the instance does not define.
    """
    if all(stage.of == stage.tensor == 1 for stage in stages):
        return ()
    known = {1, *instance.degrees}
    degrees: list[Degree | None] = [None] * instance.length
    layers = instance.each_layer()
    for index, stage in enumerate(stages):
        at = f"$.stages[{index}].part"
        if stage.of not in known:
            ways = ", ".join(map(str, sorted(known - {1}))) or "none"
            raise InstanceError(
                f"the instance does not split a micro-batch into {stage.of} parts; it allows {ways}", at
            )
        own = Degree(stage.of, stage.tensor, _ring_of(machine, stage, f"$.stages[{index}].tensor"))
        for layer in stage.layers:
            if stage.tensor > 1 and str(stage.tensor) not in layers[layer].tensor:
                known_ = ", ".join(layers[layer].tensor) or "none"
                text = f"layer {layer + 1} has no entry for {stage.tensor} devices in `tensor`; it has {known_}"
                raise InstanceError(text, f"$.stages[{index}].tensor")
            other = degrees[layer] or own
            if other.parts != own.parts:
                raise InstanceError(f"layer {layer + 1} is in {other.parts} parts elsewhere", at)
            if other.tensor != own.tensor:
                text = f"layer {layer + 1} is run by {other.tensor} devices together elsewhere"
                raise InstanceError(text, f"$.stages[{index}].tensor")
            if [_speed(link) for link in other.ring] != [_speed(link) for link in own.ring]:
                text = f"layer {layer + 1} is on another group, whose links differ from those of this group"
                raise InstanceError(text, f"$.stages[{index}].tensor")
            degrees[layer] = own
    return tuple(degree or Degree() for degree in degrees)


def _speed(link: Link) -> tuple[Number | None, Number, Number]:
    return link.bandwidth, link.latency, link.delay


def _ring_of(machine: Machine, stage: Stage, at: str) -> tuple[Link, ...]:
    """Return the links between the devices that run a stage together, each to the next, and the last to the first.

    Raises
    ------
    InstanceError
        If the devices are not a group of equals in a ring of links, or also share micro-batches in parts.
    """
    if stage.tensor == 1:
        return ()
    if stage.of > 1:
        raise InstanceError("a stage is run in parts of micro-batches, or by several devices together, not both", at)
    if stage.devices.stop > len(machine.processors):
        first, count = machine.processors[stage.device].name, len(machine.processors)
        raise InstanceError(
            f"the stage needs {stage.tensor} devices from {first} on, more than the {count} of the cluster allow", at
        )
    own = [machine.processors[device] for device in stage.devices]
    for other in own[1:]:
        for what, values in (
            ("type", [own[0].type, other.type]),
            ("bytes", [machine.memories[one.memory].capacity for one in (own[0], other)]),
        ):
            if values[0] != values[1]:
                text = f"{own[0].name} and {other.name} differ in {what} ({values[0]}, {values[1]})"
                raise InstanceError(f"a group is of equal devices, and {text}", at)
    ends = zip(own, [*own[1:], own[0]], strict=True)
    try:
        return tuple(machine.link_between(one.memory, other.memory) for one, other in ends)
    except MissingLinkError as error:
        raise InstanceError(f"the devices of a group exchange values, and {error.message}", at) from None


def spread_in_groups(one: Orders, count: int) -> Orders:
    """Return orders in which each group of neighbouring devices runs what one device runs in the given orders."""
    stages = tuple(replace(stage, device=count * stage.device, tensor=count) for stage in one.stages)
    lists = tuple(own for listed in one.lists for own in (listed, *((),) * (count - 1)))
    paired = tuple(own for at in one.paired for own in (at, *(frozenset[int](),) * (count - 1)))
    return Orders(stages, lists, paired)


def of_firsts(orders: Orders) -> tuple[Orders, tuple[int, ...]]:
    """Return the orders of the first device of each group, and the remaining devices."""
    others = {device for stage in orders.stages for device in stage.devices[1:]}
    left = tuple(device for device in range(len(orders.lists)) if device not in others)
    stages = tuple(replace(stage, device=left.index(stage.device), tensor=1) for stage in orders.stages)
    paired = tuple(orders.paired[device] for device in left) if orders.paired else ()
    return Orders(stages, tuple(orders.lists[device] for device in left), paired), left


def initial_of(graph: TaskGraph, machine: Machine, orders: Orders) -> tuple[tuple[int, int], ...]:
    """Return the initial memories of a pipeline's parameters as (value, memory): those of all devices of the layer."""
    places: dict[tuple[int, int], None] = {}
    for stage in orders.stages:
        memory = machine.processors[stage.device].memory
        for layer in stage.layers:
            for name in "wgo":
                value = graph.values.find(f"{name}{layer + 1}")
                if value is not None:
                    places[value, memory] = None
    return tuple(places)


_OPERATION = re.compile(r"(BW|F|B|W|R)(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


def read_operation(text: object, path: str) -> Pass:
    """Read ``F2.0``; InstanceError for anything else."""
    found = _OPERATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InstanceError(
            f"{brief(text)} is not an operation such as F2.0 (F, B, W, BW or R; stage; micro-batch)", path
        )
    return Pass(Phase[found[1]], int(found[2]), int(found[3]))


def read_pair(text: object, path: str) -> tuple[Pass, ...]:
    """Read an operation or a pair, ``F2.0&BW5.3``; InstanceError for anything else."""
    if not isinstance(text, str) or "&" not in text:
        return (read_operation(text, path),)
    pair = tuple(read_operation(part, path) for part in text.split("&", 1))
    if pair[0].phase is not Phase.F or pair[1].phase not in (Phase.B, Phase.BW):
        raise InstanceError(f"{brief(text)}: only a forward and a backward can be paired, as in F2.0&B5.3", path)
    return pair


def orders_of(instance: Instance, document: Any, machine: Machine) -> Orders | None:
    """Return the orders of a schedule document; None where it lists steps. InstanceError if they are not valid."""
    if "orders" not in read_head(document):
        if is_pipeline(instance) and instance.closes:
            raise InstanceError(
                "a step that ends with an exchange or updates is planned by stages and orders", "$.steps"
            )
        if "stages" in document:
            raise InstanceError("stages need orders", "$.stages")
        return None
    if not is_pipeline(instance):
        raise InstanceError(f"orders are for pipelines, and the instance is a {instance.kind}", "$.orders")
    if "steps" in document:
        raise InstanceError("steps and orders exclude each other: the steps follow from the orders", "$.steps")
    devices = [processor.name for processor in machine.processors]
    return read_orders(document, devices, instance.length, instance.micro_batches)


def read_orders(document: dict[str, Any], devices: Sequence[str], layers: int, batches: int) -> Orders:
    """Read `stages` and `orders` of a schedule document.

    Parameters
    ----------
    document : dict
        The schedule document.
    devices : sequence of str
        Names of the machine's processors.
    layers, batches : int
        Numbers of the instance.

    Raises
    ------
    InstanceError
        If the lists do not contain operations of these stages on these devices. The verifier checks whether the orders
        are complete and feasible.
    """
    stages, versions = read_stages(document.get("stages"), devices, layers)
    if versions is not None:
        raise InstanceError("with orders, parameters change between steps only: there is one version", "$.stages")
    listed = document.get("orders")
    if not isinstance(listed, dict):
        raise InstanceError("expected an object: the name of a device -> its list of operations", "$.orders")
    known = {name: index for index, name in enumerate(devices)}
    lists: list[tuple[Pass, ...]] = [()] * len(devices)
    paired: list[frozenset[int]] = [frozenset()] * len(devices)
    for name, operations in listed.items():
        path = f"$.orders.{name}"
        if name not in known:
            raise InstanceError(f"unknown device {brief(name)}", "$.orders")
        if not isinstance(operations, list):
            raise InstanceError("expected a list of operations", path)
        read: list[Pass] = []
        for k, text in enumerate(operations):
            pair = read_pair(text, f"{path}[{k}]")
            for operation in pair:
                _check_operation(operation, stages, batches, known[name], devices, f"{path}[{k}]")
            read += pair
            if len(pair) > 1:
                paired[known[name]] |= {len(read) - 1}
        lists[known[name]] = tuple(read)
    return Orders(stages, tuple(lists), tuple(paired) if any(paired) else ())


def _check_operation(
    operation: Pass, stages: Sequence[Stage], batches: int, device: int, devices: Sequence[str], path: str
) -> None:
    if operation.stage >= len(stages):
        raise InstanceError(f"{operation}: there are {len(stages)} stages, counted from 0", path)
    if operation.batch >= batches:
        raise InstanceError(f"{operation}: there are {batches} micro-batches, counted from 0", path)
    if stages[operation.stage].device != device:
        where = devices[stages[operation.stage].device]
        raise InstanceError(f"{operation}: stage {operation.stage} is on {where}", path)


def read_stages(
    listed: object, devices: Sequence[str], layers: int
) -> tuple[tuple[Stage, ...], tuple[int, ...] | None]:
    """Read `stages` of a schedule document, and each stage's number of parameter versions, if all stages give it.

    Raises
    ------
    InstanceError
        If the stages do not consist of these layers on these devices.
    """
    if not isinstance(listed, list) or not listed:
        raise InstanceError("expected a list of stages, each with its layers and its device", "$.stages")
    known = {name: index for index, name in enumerate(devices)}
    stages: list[Stage] = []
    versions: list[int] = []
    for index, stage in enumerate(listed):
        path = f"$.stages[{index}]"
        more = {"versions", "part", "recompute", "tensor"}
        if not isinstance(stage, dict) or stage.keys() - more != {"layers", "device"}:
            raise InstanceError(
                "a stage is an object with the keys layers and device, and perhaps part, recompute and tensor", path
            )
        if not isinstance(stage["device"], str) or stage["device"] not in known:
            raise InstanceError(f"unknown device {brief(stage['device'])}", f"{path}.device")
        held, part = _read_layers(stage["layers"], layers, f"{path}.layers"), _read_part(stage, f"{path}.part")
        again = read_recompute(stage["recompute"], held, f"{path}.recompute") if "recompute" in stage else ()
        together = stage.get("tensor", 1)
        if type(together) is not int or not 1 <= together <= LARGEST_COUNT:
            raise InstanceError("expected how many devices run it together", f"{path}.tensor")
        stages.append(Stage(held, known[stage["device"]], *part, again, together))
        if "versions" in stage:
            kept = stage["versions"]
            if type(kept) is not int or not 1 <= kept <= LARGEST_COUNT:
                raise InstanceError(f"versions is a whole number, 1 to {LARGEST_COUNT:,}", f"{path}.versions")
            versions.append(kept)
    if versions and len(versions) < len(stages):
        raise InstanceError("either all stages or none give their number of versions", "$.stages")
    return tuple(stages), tuple(versions) or None


def _read_part(stage: dict[str, Any], path: str) -> tuple[int, int]:
    """Read the part of each micro-batch that a stage runs (from 0) and the number of parts; default: all of it."""
    part = stage.get("part", [1, 1])
    good = isinstance(part, list) and len(part) == 2 and all(type(one) is int for one in part)
    if not good or not 1 <= part[0] <= part[1] <= LARGEST_COUNT:
        raise InstanceError("expected [1, 2] for the first of two parts", path)
    return part[0] - 1, part[1]


def _read_layers(listed: object, layers: int, path: str) -> tuple[int, ...]:
    """Read ``[a, b)`` as two numbers under `from` and `to`, or a list of layers; both counted from 1, as tasks are."""
    if isinstance(listed, dict) and listed.keys() == {"from", "to"}:
        ends = (listed["from"], listed["to"])
        if any(type(end) is not int for end in ends) or not 1 <= ends[0] <= ends[1] <= layers:
            raise InstanceError(f"from and to are layers, 1 to {layers}", path)
        return tuple(range(ends[0] - 1, ends[1]))
    good = isinstance(listed, list) and listed and all(type(one) is int and 1 <= one <= layers for one in listed)
    if not good:
        raise InstanceError(f'expected {{"from": 1, "to": 3}} or a list of layers, 1 to {layers}', path)
    assert isinstance(listed, list)
    if sorted(set(listed)) != listed:
        raise InstanceError("layers are listed in order, each once", path)
    return tuple(one - 1 for one in listed)


def stages_document(stages: Iterable[Stage], devices: Sequence[str]) -> list[dict[str, Any]]:
    """Return the key `stages` of a schedule document."""
    return [
        {"layers": _shown(stage.layers), "device": devices[stage.device]}
        | ({} if stage.of == 1 else {"part": [stage.part + 1, stage.of]})
        | ({"recompute": recompute_document(stage.recompute)} if stage.recompute else {})
        | ({} if stage.tensor == 1 else {"tensor": stage.tensor})
        for stage in stages
    ]


def _shown(layers: tuple[int, ...]) -> Any:
    if layers == tuple(range(layers[0], layers[-1] + 1)):
        return {"from": layers[0] + 1, "to": layers[-1] + 1}
    return [layer + 1 for layer in layers]
