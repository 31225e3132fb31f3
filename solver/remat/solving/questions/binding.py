"""Bottlenecks of a plan, and the gain from more memory or another device, measured by planning larger clusters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from remat.errors import InstanceError, OptionError
from remat.instance.base import instance_document
from remat.solving.decisions.groups import groups_of
from remat.solving.decisions.values import OFFLOADED
from remat.solving.decisions.words import sentence
from remat.solving.entry import solve
from remat.solving.problem_setup import read_seconds
from remat.solving.questions.parallel_degrees import ALGORITHM
from remat.solving.questions.plan import Planned, pipeline_of
from remat.units import Number

GIB = 2**30


@dataclass(frozen=True)
class Binding:
    """Bottlenecks of a plan, and the gain from larger clusters.

    Attributes
    ----------
    fullest : str
        The device whose peak is the largest share of its memory; `filled` is that share, None without limits.
    busiest : str
        The device that runs for the longest; `load` is its share of the makespan.
    recompute_time : number
        Recomputation time of all devices.
    more : mapping
        Addition -> resulting makespan; None: no better plan is known.
    busy : mapping
        Busy share of the makespan for each processor and each used link.
    copy_time, hidden_time : number
        Time of all copies on all links, and its part during which a processor runs a task.
    offloaded : tuple of str
        Descriptions of the values that wait in another memory.
    """

    fullest: str
    filled: float | None
    busiest: str
    load: float
    recompute_time: Number
    more: Mapping[str, Number | None]
    busy: Mapping[str, float] = field(default_factory=dict[str, float])
    copy_time: Number = 0
    hidden_time: Number = 0
    offloaded: tuple[str, ...] = ()


def binding(
    planned: Planned, *, options: Mapping[str, Any] | None = None, time_limit: float | str | None = None, seed: int = 0
) -> Binding:
    """Return the bottlenecks of a plan.

    Parameters
    ----------
    planned : Planned
        With a schedule.
    options, seed
        For each solve; the better of its plan and the existing plan counts.
    time_limit
        Total for all these solves.
    """
    limit = read_seconds(time_limit, default=None)
    end = None if limit is None else time.monotonic() + limit
    result = planned.result
    report = result.report
    assert report is not None
    machine = result.machine
    filled = {
        memory.name: report.peaks[memory.name].size / memory.capacity for memory in machine.memories if memory.capacity
    }
    fullest = max(filled, key=lambda name: filled[name], default=machine.memories[0].name)
    makespan = report.makespan or 1
    busy = {processor.name: 1 - report.idle.get(processor.name, 0) / makespan for processor in machine.processors}
    busiest = max(busy, key=lambda name: busy[name])
    links = {name: float(report.busy[name] / makespan) for name in report.overlap if report.busy[name]}
    offloaded = [group for group in groups_of(result) if group.decision == OFFLOADED]
    more: dict[str, Number | None] = {}
    asked = list(_more(planned))
    for number, (name, ask) in enumerate(asked):
        left = None if end is None else max(0.0, end - time.monotonic()) / (len(asked) - number)
        try:
            if planned.degrees.tensor:
                ask |= {"algorithm": ALGORITHM, "options": options}
            else:  # stages of several degrees
                ask |= {"algorithm": "piper"}
            found = solve(**ask, time_limit=left, seed=seed).makespan
        except (InstanceError, OptionError):
            continue
        more[name] = report.makespan if found is None else min(found, report.makespan)
    return Binding(
        fullest=fullest,
        filled=filled.get(fullest),
        busiest=busiest,
        load=busy[busiest],
        recompute_time=planned.recompute_time,
        more=more,
        busy={**busy, **links},
        copy_time=sum(report.busy[name] for name in report.overlap),
        hidden_time=sum(report.overlap.values()),
        offloaded=tuple(sentence(group, result) for group in offloaded),
    )


def _more(planned: Planned) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each addition, and the solve that measures its gain."""
    instance, machine, count = planned.instance, planned.result.machine, planned.degrees.tensor
    every = {memory.name: memory.capacity for memory in machine.memories}
    capacities = {
        name: every.pop(name) for name in dict.fromkeys(machine.memories[own.memory].name for own in machine.processors)
    }
    if count > 1:  # each group as one device
        instance = instance.of_tensor(count)
        capacities = {name: capacities[name] for name in instance.build_machine().memory_index if name in capacities}
    if None not in capacities.values():
        whole = planned.result.units.memory == "unit"
        step = max(1, max(size or 0 for size in capacities.values()) // 8) if whole else GIB
        name = f"{step:,} more of memory on each device" if whole else "1 GiB more on each device"
        larger_ones = {key: (size or 0) + step for key, size in capacities.items()}
        yield name, {"instance": instance, "budget": larger_ones | every}  # those of no device stay as they are
    if count == 1 and instance.sharding is None and len(set(capacities.values())) == 1:
        try:
            larger = pipeline_of(instance, devices=len(machine.processors) + 1, micro_batches=None, link=None)
        except (InstanceError, OptionError):
            return
        document = instance_document(larger)
        size = next(iter(capacities.values()))
        for device in document["cluster"]["devices"]:
            device |= {} if size is None else {"memory": size}
        yield "1 device more", {"instance": document}
