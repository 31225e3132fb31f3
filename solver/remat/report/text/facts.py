"""The facts of an instance as a table: sizes, bounds, and the tasks that set them."""

from __future__ import annotations

from collections.abc import Iterator

from remat.graph.machine import Link, Machine
from remat.graph.taskgraph import GRADIENTS, PARAMETERS, STATES
from remat.messages import counted
from remat.report.text.readable_names import shown_in_module, shown_name
from remat.report.text.summary import table
from remat.report.views.composition import composition_of
from remat.report.views.kinds import by_term
from remat.report.views.traffic import traffic_by_term
from remat.solving.facts import Facts
from remat.solving.overlap_bound import Hiding
from remat.solving.reference_words import reference_words
from remat.units import Number, Units, format_budget, format_size, format_time

MOST_LINKS = 8
"""Number of links that are listed individually."""

LENGTH_OF_KIND = {"chain": "stage", "adjoint": "step", "tree": "node", "pipeline": "layer", "join": "stage"}


def facts_table(facts: Facts) -> str:
    """Return the facts as aligned text."""
    return table(facts_lines(facts))


def facts_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield (label, text) pairs; an empty label continues the one above."""
    units = facts.units

    def size(figure: int) -> str:
        return format_size(figure, units, both=True)

    extent = "" if facts.length is None else f", {counted(facts.length, LENGTH_OF_KIND[facts.kind])}"
    if facts.variants:
        extent += f", {counted(facts.variants, 'variant')}"
    yield "instance", f"{shown_name(facts.name) or '(unnamed)'} ({facts.kind}{extent})"
    yield "task graph", f"{counted(facts.tasks, 'task')}, {counted(facts.values, 'value')}"
    yield "all values", f"{size(facts.total_size)}, each once"
    if facts.largest_value is not None:
        name = shown_in_module(facts.largest_value.name, facts.largest_value.module)
        yield "largest value", f"{name}: {size(int(facts.largest_value.figure))}"
    longest = facts.longest_task
    yield "longest task", f"{shown_in_module(longest.name, longest.module)}: {format_time(longest.figure, units)}"
    if facts.by_type:
        yield "times by type", f"{facts.by_type:,} of {counted(facts.tasks, 'task')}"
    if facts.tied:
        yield "tied", f"{facts.tied:,} of {counted(facts.tasks, 'task')}, to some of the processors"
    if facts.divisions:
        yield "left open", f"{facts.divisions}; figures are of the one listed"
    if facts.placeable:
        yield (
            "to be placed",
            f"{facts.placeable:,} of {counted(facts.values, 'value')}: inputs whose memory the schedule chooses",
        )
    if facts.collectives:
        where = "all ranks together" if facts.ranks > 1 else "each in several memories at once"
        yield "collectives", f"{facts.collectives:,} of {counted(facts.tasks, 'task')}, {where}"
    if facts.static_memory:
        yield "static memory", size(facts.static_memory)
    yield "no recomputation", f"time {format_time(facts.no_recompute_time, units)}"
    if facts.no_recompute_peak is not None:
        step = shown_in_module(facts.no_recompute_peak_step or "", facts.no_recompute_peak_module)
        peak = format_budget(facts.no_recompute_peak, units, both=True)
        yield "", f"peak {peak} in {shown_name(facts.working_memory)}, set by {step}"
    if facts.reference_time != facts.no_recompute_time and facts.kind != "pipeline":
        yield "", f"overheads are over {reference_words(facts)}"
    if facts.terms:
        yield from _training_lines(facts)
    yield "least time", f"{format_time(facts.time_bound, units)}: {facts.time_bound_cause}"
    yield from _need_lines(facts)
    yield from _machine_lines(facts.machine, units)
    if facts.hiding is not None:
        yield from _hiding_lines(facts.hiding, units)
    yield "verdict", _verdict(facts)
    yield "digest", facts.digest


def _need_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield lower bounds on the bytes of each memory, and of all together."""
    needs = [(shown_name(name), need) for name, need in facts.memory_needs.items()]
    if facts.total_need is not None:
        needs.append(("all memories together", facts.total_need))
    for k, (name, need) in enumerate(needs):
        cause = "the initial or final contents"
        if need.task is not None:
            cause = f"task {shown_in_module(need.task, need.module)}"
        least = format_budget(need.size, facts.units, both=True, enough=False)
        yield "memory bound" if k == 0 else "", f"{name}: at least {least}, needed by {cause}"


def _training_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the bytes of parameters, gradients and states, their part at the peak, and the traffic between ranks."""
    units = facts.units

    def size(figure: int) -> str:
        return format_size(figure, units, both=True)

    for k, term in enumerate(facts.terms):
        homes = " and ".join(
            f"{format_size(part, units)} in {shown_name(memory)}" if len(term.homes) > 1 else f"in {shown_name(memory)}"
            for memory, part in term.homes
        )
        text = f"{term.name} {size(term.size)}" + (f", {homes}" if homes else "")
        if term.largest < term.size and not homes:
            text += f", the largest {format_size(term.largest, units)}"
        yield "training" if k == 0 else "", text
    lasting = [term.size for term in facts.terms if term.name in (PARAMETERS, GRADIENTS, STATES)]
    where = f" on each of {facts.ranks:,} ranks" if facts.ranks > 1 else ""
    yield "", f"the first {len(lasting)} together {size(sum(lasting))}{where}"
    alone = facts.alone
    if alone is None or alone.columns is None:
        return
    contents = composition_of(alone).contents[alone.machine.memory_index[facts.working_memory]]
    listed = [f"{term} {format_size(sum(own.values()), units)}" for term, own in by_term(contents.at_peak).items()]
    yield "at that peak", ", ".join(listed)
    for k, (name, row) in enumerate(traffic_by_term(alone.graph, alone.machine, alone.columns).items()):
        crossing = ", ".join(f"{term} {format_size(part, units)}" for term, part in row.items())
        yield "traffic" if k == 0 else "", f"{shown_name(name)}: {crossing}"


def _verdict(facts: Facts) -> str:
    if facts.total_too_small:
        return "infeasible: all memories together cannot hold what any schedule needs"
    if facts.too_small:
        return f"infeasible: {', '.join(facts.too_small)} cannot hold what any schedule needs"
    if facts.fits is None:
        return "there is no schedule without transfers between memories"
    if not facts.fits:
        return "does not fit without recomputation or transfers"
    return "everything fits without recomputation" + (", as no budget is given" if facts.capacity is None else "")


def _machine_lines(machine: Machine, units: Units) -> Iterator[tuple[str, str]]:
    for k, memory in enumerate(machine.memories):
        limit = "unbounded" if memory.capacity is None else format_budget(memory.capacity, units, both=True)
        if memory.static:
            limit += f", {format_size(memory.static, units, both=True)} of it taken throughout"
        yield "memories" if k == 0 else "", f"{shown_name(memory.name)}: {limit}"
    listed = [
        f"{shown_name(p.name)} in {shown_name(machine.memories[p.memory].name)}"
        + ("" if p.speed == 1 else f", speed {p.speed:g}")
        + (f" ({shown_name(p.type)})" if p.type else "")
        for p in machine.processors
    ]
    if len(listed) > 4:
        listed = [*listed[:2], f"... {listed[-1]} ({len(listed)} in all)"]
    yield "processors", ", ".join(listed)
    if len(machine.links) > MOST_LINKS:
        speeds = sorted({_speed(link, units) for link in machine.links})
        yield "links", f"{len(machine.links):,}: {'; '.join(speeds[:4])}{'; ...' if len(speeds) > 4 else ''}"
        return
    working = {processor.name for processor in machine.processors}
    for k, link in enumerate(machine.links):
        alone = link.channel not in working
        beside = f"channel {shown_name(link.channel)}" if alone else f"{shown_name(link.channel)} waits meanwhile"
        about = f"{_speed(link, units)}, {beside}"
        yield "links" if k == 0 else "", f"{shown_name(machine.link_name(k))}: {about}"


def _hiding_lines(hiding: Hiding, units: Units) -> Iterator[tuple[str, str]]:
    for k, (name, movable) in enumerate(hiding.movable.items()):
        what = "any number of bytes" if movable is None else format_size(movable, units, both=True)
        about = f"{what} during {format_time(hiding.compute_time, units)} of computation"
        if movable == 0:
            about = "no bytes, because the processor waits during transfers"
        yield "links can hide" if k == 0 else "", f"{shown_name(name)}: {about}"
    limit = format_budget(hiding.budget, units, both=True, enough=not hiding.least)
    at = f"at the {'lower bound' if hiding.least else 'budget'} of {limit}"
    if not hiding.away:
        yield "offloading", f"{at} all values fit without it"
        return
    yield "offloading", f"{at} up to {format_size(hiding.away, units, both=True)} must be in other memories at a time"
    ways = ((hiding.out_bandwidth, "out"), (hiding.back_bandwidth, "back"))
    stuck = [way for bandwidth, way in ways if bandwidth == float("inf")]
    if stuck:
        waits = all(movable == 0 for movable in hiding.movable.values())
        why = "are synchronous" if waits else "have no runs to overlap with where they are needed"
        yield "", f"always costs time: transfers {' and '.join(stuck)} {why}"
    else:
        needed = " and ".join(f"{_rate(bandwidth, units)} {way}" for bandwidth, way in ways)
        yield "", f"free, by volume, from {needed}"


def _speed(link: Link, units: Units) -> str:

    bandwidth = link.with_ratio(None).bandwidth
    rate = "infinite bandwidth" if bandwidth is None else _rate(bandwidth, units)
    if link.packed is not None:
        rate += f", packed to {100 * link.packed.ratio:g} %"
    return rate if not link.latency else f"{rate}, latency {format_time(link.latency, units)}"


def _rate(bandwidth: Number, units: Units) -> str:

    if units.memory == "unit" or units.time == "unit":
        return f"bandwidth {bandwidth:g}"
    seconds = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[units.time]
    return f"{format_size(int(bandwidth * seconds), units, both=True)} per second"
