"""The table of a plan: for each stage its layers, device, recomputation, bytes by kind, and load."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from remat.graph.taskgraph import TaskGraph
from remat.messages import listing
from remat.plugin.proposal import Status, Termination
from remat.report.text.class_bounds import class_bounds
from remat.report.text.columns import aligned, room
from remat.report.text.shortfall_lines import OPTION, shortfall_lines
from remat.report.text.summary import (
    arrangement,
    decision_lines,
    ending,
    figures,
    least_budget_lines,
)
from remat.report.text.update_line import update_lines
from remat.report.views.composition import composition_of
from remat.report.views.kinds import Kind
from remat.schedule.orders import Stage
from remat.schedule.recompute import segments_of
from remat.schedule.steps import StepKind
from remat.solving.decisions.phrases import ranges
from remat.solving.questions.binding import Binding
from remat.solving.questions.plan import Planned
from remat.units import Number, format_budget, format_size, format_time

HOST = "host"
"""The memory behind the devices."""

_LAYER = re.compile(r"[a-z]([0-9]+)\.")
"""A value of a layer, by its name."""

LONGER = "its options moves and effort make it search longer"
"""Remark on a planner that has ended without a proof."""

MOST_BUSY = 8
"""Maximum number of processors, of links, and of lines on offloading."""

MOST_PARTS = 3
"""Maximum number of ranges of recomputed layers that the table lists for a stage."""

KINDS = {"w": "parameters", "g": "gradients", "o": "states"}

OF_DEVICE = ("activations", "workspace")
"""Bytes at the peak of a device, of all its stages."""


@dataclass(frozen=True)
class _Row:
    """A stage, the recomputations of each of its layers, and the bytes per micro-batch that wait at a host."""

    stage: Stage
    recomputations: dict[int, int]
    away: float = 0.0


def _stages(planned: Planned) -> list[_Row]:
    """Return the stages of orders; for steps, the runs of consecutive layers on one device, with their treatment."""
    result, batches = planned.result, planned.instance.micro_batches
    if result.report is None:
        return []
    if result.orders is not None:
        return [_Row(stage, recomputations(stage, batches)) for stage in result.orders.stages]
    steps = result.columns
    if steps is None or steps.on is None:
        return []
    device: dict[int, int] = {}
    again, away = Counter[int](), Counter[int]()
    for kind, item, on, target in zip(
        steps.kind.tolist(), steps.item.tolist(), steps.on.to_lists(), steps.target.tolist(), strict=True
    ):
        if kind == StepKind.RUN and item < planned.instance.length * batches:  # forwards, layer by layer
            device[item // batches] = on[0]
            again[item // batches] += 1
        elif kind == StepKind.COPY and result.machine.memories[target].name == HOST:
            layer = _LAYER.match(str(result.graph.values[item]))
            away[int(layer[1]) - 1 if layer else -1] += int(result.graph.size[item])
    rows = []
    for home, group in groupby(sorted(device), key=device.__getitem__):
        layers = tuple(group)
        rows.append(
            _Row(
                Stage(layers, home),
                {layer: again[layer] - batches for layer in layers if again[layer] > batches},
                sum(away[layer] for layer in layers) / batches,
            )
        )
    return rows


def stage_rows(planned: Planned) -> list[dict[str, Any]]:
    """Return the contents and work of each stage as JSON; empty without a schedule.

    Bytes are those of the stage, except `activations`, `workspace` and `peak`: they are those of its device, which may
    hold other stages, too. `host` is the mean number of bytes of a micro-batch that wait at a host.
    """
    result, found = planned.result, _stages(planned)
    if result.report is None:
        return []
    static = [_static(result.graph, row.stage) for row in found]
    of_device: dict[int, int] = {}
    for row, own in zip(found, static, strict=True):
        of_device[row.stage.device] = of_device.get(row.stage.device, 0) + sum(own.values())
    makespan, contents = result.report.makespan or 1, composition_of(result).contents
    rows = []
    for number, (row, own) in enumerate(zip(found, static, strict=True)):
        stage = row.stage
        processor = result.machine.processors[stage.device]
        memory = result.machine.memories[processor.memory]
        peak = result.report.peaks[memory.name].size
        kinds = contents[processor.memory].at_peak
        workspace = sum(size for kind, size in kinds.items() if kind in (Kind.WORKSPACE, Kind.OTHER))
        rows.append(
            {
                "stage": number,
                "layers": [layer + 1 for layer in stage.layers],
                "device": processor.name,
                "devices": [result.machine.processors[device].name for device in stage.devices],
                "recompute": sum(row.recomputations.values()) / planned.instance.micro_batches,
                "recomputations": [
                    {"layer": layer + 1, "times": times} for layer, times in sorted(row.recomputations.items())
                ],
                **({"host": row.away} if planned.instance.cluster.host is not None else {}),
                **own,
                "activations": peak - of_device[stage.device] - workspace,
                "workspace": workspace,
                "peak": peak,
                "budget": memory.capacity,
                "load": float(_busy(planned, processor.name) / makespan),
            }
        )
    return rows


def recomputations(stage: Stage, batches: int) -> dict[int, int]:
    """Return the number of micro-batches that recompute each layer of a stage, without layers that none recomputes."""
    return dict(
        Counter(layer for batch in range(batches) for part in segments_of(stage.recompute, batch) for layer in part)
    )


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
    """Return the table of stages, grouped by device."""
    units = planned.result.units
    rows: list[tuple[str, ...]] = [
        (
            *("device", "load", "peak", "stage", "layers", "recomputed", "at the host"),
            *("parameters", "gradients", "states", *OF_DEVICE),
        )
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
        told = _told(row["recomputations"], planned.instance.micro_batches)
        kinds = ("host", *KINDS.values())
        sizes = [format_size(round(row[kind]), units) if row.get(kind) else "-" for kind in kinds]
        of_device = [f"{100 * row['load']:.1f} %", format_budget(row["peak"], units)] if first else ["", ""]
        at_peak = [format_size(row[kind], units) if first and row[kind] else "" for kind in OF_DEVICE]
        named_devices = row["device"] if len(row["devices"]) == 1 else f"{row['devices'][0]} to {row['devices'][-1]}"
        rows.append((named_devices if first else "", *of_device, str(row["stage"]), named, told, *sizes, *at_peak))
    used = [k for k in range(len(rows[0])) if any(row[k] not in ("", "-") for row in rows[1:]) or k < 6]
    shown = [tuple(row[k] for k in used) for row in rows]
    return aligned(shown, left=range(len(used)), width=room())


def _told(listed: list[dict[str, int]], batches: int) -> str:
    """Return the recomputed layers, with the number of micro-batches that do it: ``1-2 in 3 of 8, 3 in 1 of 8``."""
    parts = list[tuple[list[int], int]]()
    for one in listed:
        if parts and parts[-1][1] == one["times"] and parts[-1][0][-1] == one["layer"] - 1:
            parts[-1][0].append(one["layer"])
        else:
            parts.append(([one["layer"]], one["times"]))
    shown = [f"{ranges(layers)} in {times} of {batches}" for layers, times in parts]
    more = [f"{len(shown) - MOST_PARTS + 1} more"] if len(shown) > MOST_PARTS else []
    return ", ".join([*shown[: MOST_PARTS - len(more)], *more]) or "-"


def plan_lines(planned: Planned, *, option: str = OPTION) -> Iterator[tuple[str, str]]:
    """Yield the lines that describe a plan and its figures."""
    result, instance, units = planned.result, planned.instance, planned.result.units
    yield "instance", result.instance_name or "(unnamed)"
    ended = result.termination is not Termination.COMPLETED
    how = f" ({ending(result.termination, result.default_limit, option)})" if ended else ""
    within = result.optimal_within if result.status is Status.FEASIBLE else None
    yield "status", f"{result.status}{f', optimal within {within}' if within else ''}{how}"
    if result.report is None:
        yield from _degrees(planned)
        yield from least_budget_lines(result)
        yield from shortfall_lines(result, option=option)
        yield from (("note", note) for note in result.notes)
        return
    if instance.ranks > 1:
        names = instance.cluster.names
        yield "ranks", f"{instance.ranks}: {names[0]} stands for {listing(names[: instance.ranks])}, and so on"
    yield from decision_lines(result)
    yield "time of a step", format_time(result.report.makespan, units)
    yield from update_lines(planned)
    batches = f"{instance.micro_batches} micro-batch{'' if instance.micro_batches == 1 else 'es'}"
    ranks = "" if instance.ranks == 1 else f" on each of {instance.ranks} ranks"
    each = planned.time_per_sample
    assert each is not None
    what = "sample" if instance.samples else "micro-batch"
    size = "" if not instance.samples else f" of {instance.samples} samples"
    yield f"time per {what}", f"{format_time(each, units)}: {batches}{size}{ranks}"
    if result.orders is not None:
        yield "stages", arrangement(result.orders.stages, len(result.machine.processors))
        yield "idle", f"{_percent(result.idle_share)} of the step, mean of all devices"
    yield "lower bound", f"{format_time(result.lower_bound, units)}, gap {_percent(result.gap)}"
    yield from class_bounds(result)
    if result.status is Status.FEASIBLE and result.optimal_within is None and not ended:
        yield (
            "stopped",
            f"{result.algorithm} has ended, without a proof; its options moves and effort make it search more",
        )
    again = planned.recompute_time
    yield "recomputation", f"{format_time(again, units)} on all devices, {_percent(_share(planned))} of their run time"
    yield from _degrees(planned)
    yield from (("note", note) for note in result.notes)


def _degrees(planned: Planned) -> Iterator[tuple[str, str]]:
    """Yield the degrees that were tried if there are several."""
    if len(planned.tried) > 1:
        units = planned.result.units
        listed = (
            f"{degrees} {'no schedule' if makespan is None else format_time(makespan, units)}"
            for degrees, makespan in planned.tried.items()
        )
        chosen = f"{planned.degrees}" if planned.result.report is not None else f"figures of {planned.degrees}"
        yield "degrees", f"{chosen}; tried: {'; '.join(listed)}"


def _share(planned: Planned) -> float:
    report = planned.result.report
    assert report is not None
    busy = sum(float(_busy(planned, processor.name)) for processor in planned.result.machine.processors)
    return float(planned.recompute_time) / busy if busy else 0.0


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"


def binding_lines(planned: Planned, found: Binding) -> Iterator[tuple[str, str]]:
    """Yield the binding constraints, and the gain from relaxing them."""
    units = planned.result.units
    devices = [processor.name for processor in planned.result.machine.processors]
    if found.filled is not None:
        yield "memory", f"{_alike(_filled(planned), found.fullest, 'full')}, {100 * found.filled:.1f} % of the budget"
    busy = {name: share for name, share in found.busy.items() if name in devices}
    yield "load", f"{_alike(busy, found.busiest, 'busy')}, {100 * found.load:.1f} % of the step"
    yield "devices", _shares([item for item in found.busy.items() if item[0] in devices])
    links = sorted((item for item in found.busy.items() if item[0] not in devices), key=lambda item: -item[1])
    if links:
        yield "links", _shares(links)
    if found.copy_time:
        hidden = f"{format_time(found.hidden_time, units)} of {format_time(found.copy_time, units)}"
        yield "copies", f"{hidden} ({100 * found.hidden_time / found.copy_time:.3g} %) run while a device computes"
    if planned.instance.cluster.host is not None:
        words = found.offloaded[:MOST_BUSY] or ("nothing",)
        yield from (("" if number else "offloaded", text) for number, text in enumerate(words))
        if len(found.offloaded) > MOST_BUSY:
            yield "", f"and {len(found.offloaded) - MOST_BUSY} more such lines"
    yield "recomputation", f"{format_time(found.recompute_time, units)} on all devices"
    makespan = planned.result.makespan or 0
    for name, other in found.more.items():
        if other is not None:
            gain = 100 * (1 - other / makespan) if makespan else 0.0
            yield name, f"{format_time(other, units)}" + (f", {gain:.2g} % less" if other < makespan else ": nothing")


def _filled(planned: Planned) -> dict[str, float]:
    """Return the share of each limited memory that is used at its peak."""
    report = planned.result.report
    assert report is not None
    limits = {memory.name: memory.capacity for memory in planned.result.machine.memories}
    return {name: report.peaks[name].size / limit for name, limit in limits.items() if limit}


def _alike(shares: Mapping[str, float], most: str, word: str) -> str:
    """Name all whose share is printed like the largest one: ``gpu1 and gpu2 are the fullest``."""
    names = [name for name, share in shares.items() if f"{share:.3f}" == f"{shares[most]:.3f}"]
    superlative = {"full": "fullest", "busy": "busiest"}[word]
    if len(names) < 2:
        return f"{most} is the {superlative}"
    if len(names) == len(shares):
        return f"all devices are equally {word}"
    shown = names if len(names) <= MOST_BUSY else [*names[: MOST_BUSY - 1], f"{len(names) - MOST_BUSY + 1} more"]
    return f"{', '.join(shown[:-1])} and {shown[-1]} are the {superlative}"


def _shares(listed: list[tuple[str, float]]) -> str:
    """List shares of the step; of many, the first ones."""
    shown = [f"{name} {100 * share:.3g} %" for name, share in listed[:MOST_BUSY]]
    more = [f"and {len(listed) - MOST_BUSY} more"] if len(listed) > MOST_BUSY else []
    return ", ".join([*shown, *more])


def plan_document(planned: Planned, found: Binding | None = None) -> dict[str, Any]:
    """Return the contents of the table as JSON."""
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
