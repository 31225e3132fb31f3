"""The table of a plan: for each stage its layers, device, recomputation, bytes by kind, and load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from remat.graph.taskgraph import TaskGraph
from remat.report.text.columns import aligned, room
from remat.report.text.summary import figures
from remat.schedule.again import segments_of
from remat.schedule.orders import Orders, Stage
from remat.solving.questions.binding import Binding
from remat.solving.questions.plan import Planned
from remat.units import Number, format_size, format_time

KINDS = {"w": "parameters", "g": "gradients", "o": "states"}


def stage_rows(planned: Planned) -> list[dict[str, Any]]:
    """Return what each stage holds and runs, as JSON; empty without a schedule.

    Bytes are the stage's own; `activations` and `peak` are those of its device, which may hold other stages, too.
    """
    result, orders = planned.result, planned.result.orders
    if orders is None or result.report is None:
        return []
    static = [_static(result.graph, stage) for stage in orders.stages]
    of_device: dict[int, int] = {}
    for stage, own in zip(orders.stages, static, strict=True):
        of_device[stage.device] = of_device.get(stage.device, 0) + sum(own.values())
    makespan = result.report.makespan or 1
    rows = []
    for number, (stage, own) in enumerate(zip(orders.stages, static, strict=True)):
        processor = result.machine.processors[stage.device]
        memory = result.machine.memories[processor.memory]
        peak = result.report.peaks[memory.name].size
        rows.append(
            {
                "stage": number,
                "layers": [layer + 1 for layer in stage.layers],
                "device": processor.name,
                "devices": [result.machine.processors[device].name for device in stage.devices],
                "recompute": recomputed(orders, stage, planned.instance.micro_batches),
                **own,
                "activations": peak - of_device[stage.device],
                "peak": peak,
                "budget": memory.capacity,
                "load": float(_busy(planned, processor.name) / makespan),
            }
        )
    return rows


def recomputed(orders: Orders, stage: Stage, batches: int) -> float:
    """Return how many layers of a stage run again for a micro-batch, in the mean."""
    total = sum(len(segment) for batch in range(batches) for segment in segments_of(stage.recompute, batch))
    return total / batches


def _static(graph: TaskGraph, stage: Stage) -> dict[str, int]:
    found = dict.fromkeys(KINDS.values(), 0)
    for layer in stage.layers:
        for letter, kind in KINDS.items():
            value = graph.values.find(f"{letter}{layer + 1}")
            found[kind] += 0 if value is None else int(graph.size[value])
    return found


def _busy(planned: Planned, device: str) -> Number:
    report = planned.result.report
    assert report is not None
    return report.makespan - report.idle.get(device, 0)


def stage_table(planned: Planned) -> str:
    """Return the table of stages; those of one device follow each other."""
    units = planned.result.units
    rows: list[tuple[str, ...]] = [
        ("device", "load", "peak", "stage", "layers", "recomputed", "parameters", "gradients", "states", "activations")
    ]
    seen: set[str] = set()
    place = planned.result.machine.processor_index
    listed = sorted(stage_rows(planned), key=lambda row: (place[row["device"]], row["stage"]))
    for row in listed:
        first = row["device"] not in seen
        seen.add(row["device"])
        layers = row["layers"]
        together = layers == list(range(layers[0], layers[-1] + 1))
        named = (f"{layers[0]}" if len(layers) == 1 else f"{layers[0]}-{layers[-1]}") if together else str(layers)[1:-1]
        again = row["recompute"]
        told = "-" if not again else f"{again:.3g} of {len(layers)}"
        sizes = [format_size(row[kind], units) if row[kind] else "-" for kind in KINDS.values()]
        of_device = [f"{100 * row['load']:.1f} %", format_size(row["peak"], units)] if first else ["", ""]
        activations = format_size(row["activations"], units) if first else ""
        named_devices = row["device"] if len(row["devices"]) == 1 else f"{row['devices'][0]} to {row['devices'][-1]}"
        rows.append((named_devices if first else "", *of_device, str(row["stage"]), named, told, *sizes, activations))
    used = [k for k in range(len(rows[0])) if any(row[k] not in ("", "-") for row in rows[1:]) or k < 6]
    shown = [tuple(row[k] for k in used) for row in rows]
    return aligned(shown, left=range(len(used)), width=room())


def plan_lines(planned: Planned) -> Iterator[tuple[str, str]]:
    """Yield what a plan is and gives, line by line."""
    result, instance, units = planned.result, planned.instance, planned.result.units
    yield "instance", result.instance_name or "(unnamed)"
    yield "status", str(result.status)
    if result.report is None:
        least = result.least_budget
        if least is not None:
            task = "" if least.task is None else f", set by {result.graph.described(least.task)}"
            yield "least memory", f"{format_size(least.size, units, both=True)} of a device{task}"
        yield from (("note", note) for note in result.notes)
        return
    yield "time of a step", format_time(result.report.makespan, units)
    batches = f"{instance.micro_batches} micro-batches"
    ranks = "" if instance.ranks == 1 else f" on each of {instance.ranks} ranks"
    each = planned.time_per_sample
    assert each is not None
    what = "sample" if instance.samples else "micro-batch"
    size = "" if not instance.samples else f" of {instance.samples} samples"
    yield f"time per {what}", f"{format_time(each, units)}: {batches}{size}{ranks}"
    yield "lower bound", f"{format_time(result.lower_bound, units)}, gap {_percent(result.gap)}"
    again = planned.recompute_time
    yield "recomputation", f"{format_time(again, units)} on all devices, {_percent(_share(planned))} of what they run"
    if len(planned.tried) > 1:
        listed = (
            f"{degrees} {'nothing found' if makespan is None else format_time(makespan, units)}"
            for degrees, makespan in planned.tried.items()
        )
        yield "degrees", f"{planned.degrees}; tried: {'; '.join(listed)}"
    yield from (("note", note) for note in result.notes)


def _share(planned: Planned) -> float:
    report = planned.result.report
    assert report is not None
    busy = sum(float(_busy(planned, processor.name)) for processor in planned.result.machine.processors)
    return float(planned.recompute_time) / busy if busy else 0.0


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"


def binding_lines(planned: Planned, found: Binding) -> Iterator[tuple[str, str]]:
    """Yield what binds, and what more would buy."""
    units = planned.result.units
    if found.filled is not None:
        yield "memory", f"{found.fullest} is the fullest, {100 * found.filled:.1f} % of its budget"
    yield "load", f"{found.busiest} is the busiest, {100 * found.load:.1f} % of the step"
    yield "recomputation", f"{format_time(found.recompute_time, units)} on all devices"
    makespan = planned.result.makespan or 0
    for name, other in found.more.items():
        if other is not None:
            gain = 100 * (1 - other / makespan) if makespan else 0.0
            yield name, f"{format_time(other, units)}" + (f", {gain:.2g} % less" if other < makespan else ": nothing")


def plan_document(planned: Planned, found: Binding | None = None) -> dict[str, Any]:
    """Return all that the table says, as JSON."""
    document = figures(planned.result) | {
        "samples": planned.samples,
        "time_per_sample": planned.time_per_sample,
        "degrees": asdict(planned.degrees),
        "tried": [asdict(degrees) | {"makespan": makespan} for degrees, makespan in planned.tried.items()],
        "stages": stage_rows(planned),
    }
    if found is not None:
        document["binding"] = asdict(found)
    return document
