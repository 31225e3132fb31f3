"""From CSV schedules to orders of a pipeline, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from remat.bridges.pipelining.actions import COMPUTING, Action, Cell, Kind, Overlap, Rows
from remat.bridges.pipelining.layout import Layout
from remat.errors import InstanceError, OptionError
from remat.instance import PipelineInstance
from remat.schedule.document import SCHEMA_2
from remat.schedule.orders import Orders, Pass, Phase, Stage


def even_cuts(layers: int, parts: int) -> list[int]:
    """Return the cuts of the layers into even parts; the first parts get the extra layers."""
    least, more = divmod(layers, parts)
    return list(accumulate([least + (part < more) for part in range(parts)], initial=0))


def orders_of(layout: Layout, instance: PipelineInstance, devices: int) -> Orders:
    """Return a CSV schedule as orders: row r on device r, the instance's layers split evenly.

    Transfers, and actions on parameters, are left out. A simultaneous forward and backward become a pair, in either
    order; other simultaneous operations run in the order of the cell.

    Raises
    ------
    InstanceError
        If the instance has other numbers of micro-batches, or too few layers or devices.
    """
    if layout.batches != instance.micro_batches:
        raise InstanceError(
            f"the CSV runs {layout.batches} micro-batches, and the instance has {instance.micro_batches}"
        )
    if len(layout.rows) > devices:
        raise InstanceError(f"the CSV has {len(layout.rows)} rows, one a device, and the instance {devices} devices")
    depth = max(map(len, layout.copies))
    if depth > instance.length:
        raise InstanceError(
            f"the CSV has {depth} stages one after the other, and the instance {instance.length} layers"
        )
    stages: dict[int, Stage] = {}
    for own in layout.copies:
        cuts = even_cuts(instance.length, len(own))
        for part, stage in enumerate(own):
            stages[stage] = Stage(tuple(range(cuts[part], cuts[part + 1])), layout.home[stage])
    layers = instance.each_layer()
    in_halves = [any(layers[layer].is_split for layer in stages[stage].layers) for stage in sorted(stages)]
    lists: list[list[Pass]] = [[] for _ in range(devices)]
    paired: list[set[int]] = [set() for _ in range(devices)]

    def add(row: int, action: Action) -> None:
        assert action.batch is not None
        phase = _PHASES[action.kind]
        if phase is Phase.BW and not in_halves[action.stage]:
            phase = Phase.B
        lists[row].append(Pass(phase, action.stage, action.batch))

    for row, cells in enumerate(layout.rows):
        for cell in cells:
            if pair := pair_of(cell):
                paired[row].add(len(lists[row]) + 1)
            both = (cell.first, cell.second) if isinstance(cell, Overlap) else (cell,)
            for action in pair or both:
                if action is not None and action.kind in COMPUTING:
                    add(row, action)
    return Orders(
        tuple(stages[stage] for stage in sorted(stages)),
        tuple(map(tuple, lists)),
        tuple(map(frozenset, paired)) if any(paired) else (),
    )


def pair_of(cell: Cell) -> tuple[Action, Action] | None:
    """Return the forward and the backward of a cell that runs both simultaneously; None for other cells."""
    if not isinstance(cell, Overlap):
        return None
    for one, other in ((cell.first, cell.second), (cell.second, cell.first)):
        if one.kind is Kind.FORWARD and other.kind in (Kind.BACKWARD, Kind.INPUT):
            return one, other
    return None


_PHASES = {Kind.FORWARD: Phase.F, Kind.INPUT: Phase.B, Kind.WEIGHT: Phase.W, Kind.BACKWARD: Phase.BW}


def schedule_document(orders: Orders, devices: Sequence[str]) -> dict[str, Any]:
    """Return orders as a `remat.schedule/2` document."""
    return {"schema": SCHEMA_2, **orders.to_document(devices)}


def notes_on(layout: Layout, instance: PipelineInstance) -> Iterator[str]:
    """Return notes on differences between the orders for an instance and the CSV."""
    depth, layers = max(map(len, layout.copies)), instance.length
    if layers != depth:
        yield f"the CSV does not assign layers to stages: {layers} layers are divided into {depth} equal parts"
    pairs = sum(pair_of(cell) is not None for cells in layout.rows for cell in cells)
    for count, why in (
        (layout.overlaps - pairs, "no forward and backward: they are read as one after the other"),
        (
            0 if any(layer.paired_time is not None for layer in instance.layers) else pairs,
            "no layer gives a paired_time: a pair takes as long as its operations one after the other",
        ),
    ):
        if count:
            yield f"{count:,} cell{'s' if count > 1 else ''} of two operations at once (OVERLAP_F_B), and {why}"


def rows_of(orders: Orders) -> Rows:
    """Return orders as a CSV schedule without transfers, one row per device.

    Stages are numbered as the micro-batches pass them; those that run nothing are left out.

    Raises
    ------
    OptionError
        For stages that a CSV cannot express: layers that are not consecutive.
    """
    number = stage_numbers(orders)
    halves = {one.stage for listed in orders.lists for one in listed if one.phase in (Phase.W, Phase.BW)}
    kinds = {Phase.F: Kind.FORWARD, Phase.W: Kind.WEIGHT, Phase.BW: Kind.BACKWARD}
    rows: list[tuple[Cell, ...]] = []

    def action(one: Pass) -> Action:
        kind = kinds.get(one.phase, Kind.INPUT if one.stage in halves else Kind.BACKWARD)
        return Action(kind, number[one.stage], one.batch)

    for device in range(len(orders.lists)):
        listed = (unit for unit in orders.listed(device) if unit[0].phase is not Phase.R)
        units = [tuple(map(action, unit)) for unit in listed]
        rows.append(tuple(unit[0] if len(unit) == 1 else Overlap(*unit) for unit in units))
    while rows and not rows[-1]:
        rows.pop()
    return tuple(rows)


def stage_numbers(orders: Orders) -> dict[int, int]:
    """Return the number of each stage in a CSV: as micro-batches pass them, copy by copy.

    Raises
    ------
    OptionError
        As `rows_of`.
    """
    return {stage: index for index, stage in enumerate(stage for own in _copies_of(orders) for stage in own)}


def _copies_of(orders: Orders) -> list[list[int]]:
    """Return the stages of each copy of the model, as its micro-batches pass them."""
    ran: dict[int, set[int]] = {}
    for listed in orders.lists:
        for _, stage, batch in listed:
            ran.setdefault(stage, set()).add(batch)
    groups: dict[frozenset[int], list[int]] = {}
    for stage, own in ran.items():
        groups.setdefault(frozenset(own), []).append(stage)
    depth = 1 + max(layer for stage in orders.stages for layer in stage.layers)
    copies = []
    for batches in sorted(groups, key=min):
        passed = sorted(groups[batches], key=lambda stage: orders.stages[stage].layers[0])
        if [layer for stage in passed for layer in orders.stages[stage].layers] != list(range(depth)):
            named = f"stage{'s' if len(passed) > 1 else ''} {', '.join(map(str, passed[:12]))}"
            raise OptionError(
                f"a CSV says stages of layers that follow each other, all of them for each micro-batch; {named}, which "
                f"micro-batch {min(batches)} passes, are not such"
            )
        copies.append(passed)
    return copies


@dataclass(frozen=True, slots=True)
class Uneven:
    """A stage whose layers differ from those assumed when a CSV is read, with the numbers of its layers."""

    stage: int
    has: int
    even: int


def first_uneven(orders: Orders) -> Uneven | None:
    """Return the first stage whose layers differ from its even part; None if there is none."""
    for own in _copies_of(orders):
        layers = [len(orders.stages[stage].layers) for stage in own]
        cuts = even_cuts(sum(layers), len(own))
        for part, (stage, has) in enumerate(zip(own, layers, strict=True)):
            if has != cuts[part + 1] - cuts[part]:
                return Uneven(stage, has, cuts[part + 1] - cuts[part])
    return None
