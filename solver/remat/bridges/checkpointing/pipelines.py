"""Recomputation of pipeline schedules in the formats of Megatron-LM, Primus and FlagScale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from remat.bridges.checkpointing.formats import Exported, flagscale_lines, ids_lines
from remat.bridges.megatron import megatron_flags
from remat.errors import OptionError
from remat.instance.kinds import is_pipeline
from remat.schedule.orders import Orders, Phase, Stage
from remat.schedule.recompute import Segment, segments_of
from remat.solving.questions.parallel_degrees import Degrees
from remat.solving.questions.plan import Planned
from remat.solving.verifying import Examined, examine
from remat.units import format_size, format_time


def megatron(examined: Examined) -> Exported:
    """Return the flags of Megatron-LM: in every stage, the first n layers are recomputed one by one."""
    orders, batches = _orders(examined)
    instance = examined.instance
    assert is_pipeline(instance)
    degree = {stage.tensor for stage in orders.stages}
    degrees = Degrees(data=instance.ranks, tensor=degree.pop() if len(degree) == 1 else 0)
    flags = megatron_flags(Planned(examined.as_result(), instance, degrees))
    most = max(_counts(orders, batches), default=0)
    one = _with_layers(orders, lambda stage: (Segment((layer,)) for layer in stage.layers[:most]))
    return _exported(examined, one, tuple(f"--{flag}" for flag in flags.flags), flags.notes)


def layer_ids(examined: Examined) -> Exported:
    """Return the ids of recomputed layers, as Primus takes them: the same for all micro-batches."""
    orders, _ = _orders(examined)
    again = {layer for stage in orders.stages for one in stage.recompute for layer in one.layers}
    one = _with_layers(orders, lambda stage: (Segment((layer,)) for layer in stage.layers if layer in again))
    losses = ("a layer is recomputed in every micro-batch or in none, alone; all layer inputs stay",)
    return _exported(examined, one, ids_lines(tuple(sorted(again))), losses)


def flagscale(examined: Examined) -> Exported:
    """Return FlagScale's lists: for each stage and micro-batch, the first n layers are recomputed one by one."""
    orders, batches = _orders(examined)
    counts = [
        [sum(map(len, segments_of(stage.recompute, batch))) for batch in range(batches)] for stage in orders.stages
    ]
    of_stage = {id(stage): row for stage, row in zip(orders.stages, counts, strict=True)}

    def segments(stage: Stage) -> list[Segment]:
        row = of_stage[id(stage)]
        each = (
            (layer, tuple(batch for batch, count in enumerate(row) if count > place))
            for place, layer in enumerate(stage.layers)
        )
        return [Segment((layer,), chosen) for layer, chosen in each if chosen]

    losses = ("of each stage and micro-batch the first n layers are recomputed one by one; their inputs stay",)
    return _exported(examined, _with_layers(orders, segments), flagscale_lines(counts), losses)


PIPELINE_FORMATS: dict[str, Callable[[Examined], Exported]] = {
    "megatron": megatron,
    "layer-ids": layer_ids,
    "flagscale": flagscale,
}


def _orders(examined: Examined) -> tuple[Orders, int]:
    """Return the orders of a schedule, and its number of micro-batches."""
    if examined.orders is None or examined.pattern is not None or not is_pipeline(examined.instance):
        raise OptionError("policies of pipelines are for schedules with orders", argument="as")
    return examined.orders, examined.instance.micro_batches


def _counts(orders: Orders, batches: int) -> list[int]:
    return [sum(map(len, segments_of(stage.recompute, batch))) for stage in orders.stages for batch in range(batches)]


def _with_layers(orders: Orders, segments: Callable[[Stage], Sequence[Segment] | object]) -> Orders:
    """Return orders with other recomputed layers, all within their backward."""
    stages = tuple(replace(stage, recompute=tuple(segments(stage))) for stage in orders.stages)  # type: ignore[arg-type]
    lists: list[tuple[object, ...]] = []
    paired: list[frozenset[int]] = []
    for device, operations in enumerate(orders.lists):
        own = orders.paired[device] if orders.paired else frozenset[int]()
        kept = [place for place, operation in enumerate(operations) if operation.phase is not Phase.R]
        lists.append(tuple(operations[place] for place in kept))
        paired.append(frozenset(new for new, place in enumerate(kept) if place in own))
    return replace(orders, stages=stages, lists=tuple(lists), paired=tuple(paired) if orders.paired else ())  # type: ignore[arg-type]


def _exported(examined: Examined, orders: Orders, lines: tuple[str, ...], losses: tuple[str, ...]) -> Exported:
    """Verify other orders of the same stages, and compare them with the plan's."""
    devices = [processor.name for processor in examined.machine.processors]
    stated = ("instance", "machine", "initial", "samples", "cut")
    head = {key: examined.document[key] for key in stated if key in examined.document}
    unbounded = examined.machine.with_capacities({memory.name: None for memory in examined.machine.memories})
    document = {"schema": "remat.schedule/2", **head, **orders.to_document(devices)}
    document["machine"] = unbounded.to_document()
    report = examine(examined.instance, document, any_instance=True).report
    if not report.ok:
        raise OptionError(f"the policy cannot be verified: {report.violations[0]}", argument="as")
    units = examined.instance.units.build()
    peaks = [max(one.peak_memory.values()) for one in (report, examined.report)]
    sizes, times = (
        [format_size(size, units) for size in peaks],
        [format_time(one.makespan, units) for one in (report, examined.report)],
    )
    over = ("the policy needs more memory than the plan",) if peaks[0] > peaks[1] else ()
    compared = (
        f"in the order of the plan: verified largest peak of a device {sizes[0]}, time {times[0]}; "
        f"the plan: {sizes[1]}, {times[1]}"
    )
    notes = (compared, *over, *losses)
    text = "".join(f"{line}\n" for line in (*(f"# {note}" for note in notes), *lines))
    return Exported(text, notes, peaks[0], report.makespan)
