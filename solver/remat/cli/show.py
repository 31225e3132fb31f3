"""`remat show`: an instance's facts, a schedule at a glance, the shipped instances, the JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.session import ExitCode, Session, emit
from remat.errors import OptionError

if TYPE_CHECKING:
    from remat.graph.machine import Link, Machine
    from remat.solving.facts import Facts
    from remat.solving.hiding import Hiding
    from remat.solving.verifying import Examined
    from remat.units import Number, Units

HELP = """Print an instance's facts: sizes, time and peak without recomputation, lower bounds, and what sets them.

Of a schedule: its figures, memory over time, and what is largest at the peak. It needs the instance, too (--of), unless
that is a shipped one.

\b
  remat show example:resnet50
  remat show net.json --budget 8GB         does it fit, can it fit at all?
  remat show schedule.json --of net.json   what fills the memory, and when?
  remat show schedule.json --plot values.svg --view values
  remat show --examples                    the shipped instances
  remat show --schema                      the JSON Schema of instances"""

MOST_LINKS = 8
"""Links that are listed one by one."""

LENGTH_OF_KIND = {"chain": "stages", "adjoint": "steps", "tree": "nodes", "pipeline": "layers", "join": "stages"}


@dataclass(frozen=True, kw_only=True)
class _Given:
    """The options of the command, by click's names."""

    instance: str | None
    of: str | None
    examples: bool
    schema: bool
    budget: tuple[str, ...]
    machine: str | None
    format_: str
    plot: str | None
    view: str | None


@click.command("show", help=HELP)
@click.argument("instance", required=False, shell_complete=common.complete_instance)
@click.option("--of", metavar="INSTANCE", help="The instance of a schedule.")
@click.option("--examples", is_flag=True, help="List the shipped instances.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of remat.instance/3.")
@common.budget_option
@common.machine_option
@common.format_option("table", "json")
@common.plot_options
@common.verbosity_options
@click.pass_obj
def command(session: Session, /, **given: Any) -> int:
    """Print one of the three."""
    asked = _Given(**given)
    if (asked.instance is not None) + asked.examples + asked.schema != 1:
        raise click.UsageError("name an INSTANCE or a schedule, or give one of --examples and --schema")
    if asked.schema:
        from remat.instance import json_schema

        emit(json.dumps(json_schema(), indent=2))
    elif asked.examples:
        _print_examples(asked.format_)
    elif asked.instance is not None and (document := _schedule(asked.instance, asked.of)) is not None:
        examined = _examined(session, document, asked.instance, asked.of, asked.machine, asked.plot)
        if asked.plot is not None or asked.view is not None:
            _plot(examined, asked.plot, asked.view)
        _print_schedule(examined, asked.format_)
    elif asked.instance is not None:
        if asked.plot is not None or asked.view is not None:
            raise OptionError("of instances there are no pictures; name a schedule", argument="plot")
        if asked.of is not None:
            raise OptionError(f"{asked.instance!r} is no schedule", argument="of")
        _print_facts(session, asked.instance, asked.budget, asked.machine, asked.format_)
    return ExitCode.OK


def _print_examples(format_: str) -> None:
    from remat.instance.shipped import examples

    listed = examples()
    if format_ == "json":
        emit(json.dumps({name: str(path) for name, path in listed.items()}, indent=2))
        return
    emit("\n".join(f"{common.EXAMPLE}{key.partition('/')[2]:<40} {path}" for key, path in listed.items()))


def _schedule(path: str, of: str | None) -> dict[str, Any] | None:
    """Read the document if it is a schedule; None if it is anything else, or does not even begin as one."""
    from remat.documents import read_document
    from remat.errors import InstanceError
    from remat.schedule.document import SCHEMAS

    if path.startswith(common.EXAMPLE) or path == common.STANDARD_STREAM:
        return None
    says_so = False
    try:
        # A schedule says so at its beginning; whole documents are not read twice for nothing.
        says_so = any(_begins_as(path, schema) for schema in SCHEMAS)
        if of is None and not says_so:
            return None
        document = read_document(path, "schedule")
    except (InstanceError, OSError, ValueError):
        if says_so:
            raise
        return None
    return document if isinstance(document, dict) and document.get("schema") in SCHEMAS else None


def _begins_as(path: str, schema: str) -> bool:
    import gzip

    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            return schema.encode() in file.read(400)
    except EOFError:
        return False


def _examined(
    session: Session,
    document: dict[str, Any],
    path: str,
    of: str | None,
    machine: str | None,
    plot: str | None,
) -> Examined:
    """Find the instance of a schedule, and verify the schedule."""
    from remat.solving.verifying import examine

    if plot is not None:
        common.check_distinct({"SCHEDULE": path, "--of": of, "--machine": machine, "--plot": plot})
        common.check_writable("--plot", plot)
        common.check_plot(plot)
    common.refuse_answers_without_steps(document, path)
    loaded = common.load_instance(of) if of is not None else common.instance_of_schedule(document, path)
    examined = examine(loaded, document, machine=common.load_machine_option(machine, loaded.units.build()))
    session.remark(f"loaded {loaded.kind} {loaded.name or '(unnamed)'} and its schedule")
    return examined


def _plot(examined: Examined, path: str | None, view: str | None) -> None:
    common.check_view(view, path, examined.instance.kind)
    from remat.report.plot.schedule import plot

    assert path is not None
    plot(examined.as_result(), path, view=view or "time")


def _print_schedule(examined: Examined, format_: str) -> None:
    if format_ == "json":
        from remat.report.text.schedule_view import to_dict

        emit(json.dumps(to_dict(examined), indent=2, ensure_ascii=False))
    else:
        from remat.report.text.schedule_view import schedule_view

        emit(schedule_view(examined))


def _print_facts(session: Session, instance: str, budget: tuple[str, ...], machine: str | None, format_: str) -> None:
    common.one_standard_input({"INSTANCE": instance, "--machine": machine})
    capacities = common.split_budgets(budget)
    from remat.solving.facts import show

    loaded = common.load_instance(instance)
    session.remark(f"loaded {loaded.kind} {loaded.name or '(unnamed)'}")
    model = common.load_machine_option(machine, loaded.units.build())
    common.warn_of_bare_budgets(session, capacities.items(), loaded, model)
    facts = show(loaded, budget=capacities or None, machine=model)
    if format_ == "json":
        emit(json.dumps(facts.to_dict(), indent=2, ensure_ascii=False))
    else:
        from remat.report.text.summary import table

        emit(table(_lines(facts)))


def _lines(facts: Facts) -> Iterator[tuple[str, str]]:
    from remat.report.text.naming import shown_in_module, shown_name
    from remat.units import format_size, format_time

    units = facts.units

    def size(figure: int) -> str:
        return format_size(figure, units, both=True)

    extent = "" if facts.length is None else f", {facts.length:,} {LENGTH_OF_KIND[facts.kind]}"
    if facts.variants:
        extent += f", {facts.variants:,} variants"
    yield "instance", f"{shown_name(facts.name) or '(unnamed)'} ({facts.kind}{extent})"
    yield "task graph", f"{facts.tasks:,} tasks, {facts.values:,} values"
    yield "all values", f"{size(facts.total_size)}, each once"
    if facts.largest_value is not None:
        yield "largest value", f"{shown_name(facts.largest_value.name)}: {size(int(facts.largest_value.figure))}"
    longest = facts.longest_task
    yield "longest task", f"{shown_in_module(longest.name, longest.module)}: {format_time(longest.figure, units)}"
    if facts.by_type:
        yield "times by type", f"{facts.by_type:,} of {facts.tasks:,} tasks"
    if facts.tied:
        yield "tied", f"{facts.tied:,} of {facts.tasks:,} tasks, to some of the processors"
    if facts.divisions:
        yield "left open", f"{facts.divisions}; figures are of the one listed"
    if facts.placeable:
        yield "to be placed", f"{facts.placeable:,} of {facts.values:,} values: inputs that lie where the schedule says"
    if facts.collectives:
        yield "collectives", f"{facts.collectives:,} of {facts.tasks:,} tasks, each in several memories at once"
    if facts.static_memory:
        yield "static memory", size(facts.static_memory)
    yield "no recomputation", f"time {format_time(facts.no_recompute_time, units)}"
    if facts.no_recompute_peak is not None:
        step = shown_in_module(facts.no_recompute_peak_step or "", facts.no_recompute_peak_module)
        yield "", f"peak {size(facts.no_recompute_peak)} in {shown_name(facts.working_memory)}, set by {step}"
    yield "least time", f"{format_time(facts.time_bound, units)}: {facts.time_bound_cause}"
    for k, (name, need) in enumerate(facts.memory_needs.items()):
        cause = "what is resident at the start or at the end"
        if need.task is not None:
            cause = f"task {shown_in_module(need.task, need.module)}"
        yield "least memory" if k == 0 else "", f"{shown_name(name)}: {size(need.size)}, needed by {cause}"
    yield from _machine_lines(facts.machine, units)
    if facts.hiding is not None:
        yield from _hiding_lines(facts.hiding, units)
    yield "verdict", _verdict(facts)
    yield "digest", facts.digest


def _verdict(facts: Facts) -> str:
    if facts.too_small:
        return f"infeasible: {', '.join(facts.too_small)} cannot hold what any schedule needs"
    if facts.fits is None:
        return "there is no schedule without transfers between memories"
    return "everything fits without recomputation" if facts.fits else "does not fit without recomputation or transfers"


def _machine_lines(machine: Machine, units: Units) -> Iterator[tuple[str, str]]:
    from remat.report.text.naming import shown_name
    from remat.units import format_size

    for k, memory in enumerate(machine.memories):
        limit = "unbounded" if memory.capacity is None else format_size(memory.capacity, units, both=True)
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
    for k, link in enumerate(machine.links):
        about = f"{_speed(link, units)}, channel {shown_name(link.channel)}"
        yield "links" if k == 0 else "", f"{shown_name(machine.link_name(k))}: {about}"


def _hiding_lines(hiding: Hiding, units: Units) -> Iterator[tuple[str, str]]:
    from remat.report.text.naming import shown_name
    from remat.units import format_size, format_time

    for k, (name, movable) in enumerate(hiding.movable.items()):
        what = "any number of bytes" if movable is None else format_size(movable, units, both=True)
        if movable == 0:
            what = "nothing: it waits for the processor"
        about = f"{shown_name(name)}: {what}, beside runs of {format_time(hiding.compute_time, units)}"
        yield "links can hide" if k == 0 else "", about
    at = f"at the {'least memory' if hiding.least else 'budget'} of {format_size(hiding.budget, units, both=True)}"
    if not hiding.away:
        yield "offloading", f"{at} nothing has to leave"
        return
    yield "offloading", f"{at} up to {format_size(hiding.away, units, both=True)} must be elsewhere at a time"
    ways = ((hiding.out_bandwidth, "out"), (hiding.back_bandwidth, "back"))
    stuck = [way for bandwidth, way in ways if bandwidth == float("inf")]
    if stuck:
        yield "", f"free at no bandwidth: it cannot go {' or '.join(stuck)} beside the runs"
    else:
        needed = " and ".join(f"{_rate(bandwidth, units)} {way}" for bandwidth, way in ways)
        yield "", f"free, by volume, from {needed}"


def _speed(link: Link, units: Units) -> str:
    from remat.units import format_time

    rate = "infinite bandwidth" if link.bandwidth is None else _rate(link.bandwidth, units)
    return rate if not link.latency else f"{rate}, latency {format_time(link.latency, units)}"


def _rate(bandwidth: Number, units: Units) -> str:
    from remat.units import format_size

    if units.memory == "unit" or units.time == "unit":
        return f"bandwidth {bandwidth:g}"
    seconds = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[units.time]
    return f"{format_size(int(bandwidth * seconds), units, both=True)} per second"
