"""Turn orders of a pipeline into placed steps: the verifier checks them, then they are placed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from remat.errors import MissingLinkError, OptionError
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.instance.kinds import is_pipeline
from remat.instance.lowering import lower
from remat.placement import Stuck, place_orders
from remat.schedule.orders import Orders, degrees_of, initial_of, tasks_of
from remat.schedule.step_end import plan_of
from remat.schedule.steps import Steps
from remat.verifier import Report, Violation, check_orders

if TYPE_CHECKING:
    from remat.instance import Instance


@dataclass(frozen=True)
class Followed:
    """Placed steps and their graph, which includes shared parts of micro-batches and the end of the step."""

    graph: TaskGraph
    steps: Steps


def with_followers(report: Report, machine: Machine, orders: Orders) -> Report:
    """Return a report in which all devices of a group have the memory and load of the first one."""
    groups = {stage.devices for stage in orders.stages if stage.tensor > 1}
    if not groups:
        return report
    peaks, busy, spans, profiles = dict(report.peaks), dict(report.busy), dict(report.spans), dict(report.profiles)
    for group in groups:
        first = machine.processors[group[0]]
        for device in group[1:]:
            other = machine.processors[device]
            one, own = (machine.memories[processor.memory].name for processor in (first, other))
            for listed, names in (
                (peaks, (own, one)),
                (profiles, (own, one)),
                (busy, (other.name, first.name)),
                (spans, (other.name, first.name)),
            ):
                _take(listed, *names)
    return replace(report, peaks=peaks, busy=busy, spans=spans, profiles=profiles)


def _take(listed: dict[str, Any], own: str, other: str) -> None:
    if other in listed:
        listed[own] = listed[other]


def follow(
    instance: Instance,
    graph: TaskGraph,
    machine: Machine,
    orders: Orders,
    initial: tuple[tuple[int, int], ...] | None = None,
) -> Followed | tuple[Violation, ...]:
    """Return the placed steps of orders, with the graph whose tasks they run, or their violations.

    `graph` is the instance's own, in which no micro-batch is shared.

    `initial` says where parameters lie from the start; by default on the devices of the stages that hold their layers.
    """
    assert is_pipeline(instance)
    degrees = degrees_of(instance, machine, orders.stages)
    if degrees:
        graph = lower(instance, machine, degrees)
    tasks = tasks_of(instance, degrees)
    devices = [processor.name for processor in machine.processors]
    transfers = instance.cluster.transfers
    memories = [processor.memory for processor in machine.processors]
    violations = check_orders(graph, tasks, orders, devices, instance.copies, memories=memories, transfers=transfers)
    if violations:
        return violations
    places = initial_of(graph, machine, orders) if initial is None else initial
    there = {value for value, _ in places}
    nowhere = [graph.values[place.value] for place in graph.placeable if place.value not in there]
    if nowhere:
        return tuple(Violation(None, "initial-placement", f"{name} is initially in no memory") for name in nowhere)
    try:
        plan = plan_of(instance, graph, machine, orders, places, tasks)
        steps = place_orders(
            plan.graph, machine, plan.processors, plan.operations, places, beside=plan.beside, transfers=transfers
        )
    except MissingLinkError as error:
        return (Violation(None, "unknown-link", error.message),)
    except OptionError as error:
        return (Violation(None, "bad-step", str(error)),)
    # The verifier has found no cycle, so nothing can be stuck, unless one of the two judges is wrong.
    assert not isinstance(steps, Stuck), f"the verifier sees no deadlock, placement does: {steps.cycle}"
    return Followed(plan.graph, steps)
