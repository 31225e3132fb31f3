"""`remat show`: an instance's facts, a schedule at a glance, the shipped instances, the JSON Schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit
from remat.errors import OptionError

if TYPE_CHECKING:
    from remat.solving.verifying import Examined

HELP = """Print an instance's facts: sizes, time and peak without recomputation, lower bounds, and what sets them.

For a schedule, print its figures, its memory over time, and the largest values at the peak. --of names its instance,
unless the instance is shipped.

\b
  remat show example:resnet50
  remat show net.json --budget 8GB                  does it fit? can any schedule fit?
  remat show schedule.json --of net.json      which values fill the memory, and when?
  remat show schedule.json --plot plan.html                            an interactive page
  remat show schedule.json --plot values.svg --view values
  remat show --examples                    the shipped instances
  remat show --schema                      the JSON Schema of instances"""


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
@click.option("--of", metavar="INSTANCE", help="Instance of the schedule.")
@click.option("--examples", is_flag=True, help="List the shipped instances.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of remat.instance/3.")
@common.budget_option
@common.machine_option
@common.format_option("table", "json")
@common.plot_options
@common.verbosity_options
@click.pass_obj
def command(session: Session, /, **given: Any) -> int:
    """Print the facts, the list of shipped instances or the schema."""
    asked = _Given(**given)
    if (asked.instance is not None) + asked.examples + asked.schema != 1:
        raise click.UsageError("name an INSTANCE or a schedule, or give one of --examples and --schema")
    if asked.schema:
        from remat.instance import json_schema

        emit(json.dumps(json_schema(), indent=2))
    elif asked.examples:
        _print_examples(session, asked.format_)
    elif asked.instance is not None and (document := _schedule(asked.instance, asked.of)) is not None:
        if common.lacks_steps(document):
            if asked.plot is not None or asked.view is not None:
                raise OptionError("an answer without a schedule has no pictures", argument="plot")
            _print_answer(session, document, asked)
            return ExitCode.OK
        examined = _examined(session, document, asked.instance, asked.of, asked.machine, asked.plot, asked.view)
        with common.sizes_as_limits(examined.machine):
            if asked.plot is not None or asked.view is not None:
                _plot(examined, asked.plot, asked.view)
            _print_schedule(session, examined, asked.format_)
    elif asked.instance is not None:
        if asked.plot is not None or asked.view is not None:
            raise OptionError("an instance has no pictures; name a schedule", argument="plot")
        if asked.of is not None:
            raise OptionError(f"{asked.instance!r} is not a schedule", argument="of")
        _print_facts(session, asked.instance, asked.budget, asked.machine, asked.format_)
    return ExitCode.OK


def _print_examples(session: Session, format_: str) -> None:
    from remat.instance.shipped import examples

    listed = examples()
    if format_ == "json":
        emit(json.dumps({name: str(path) for name, path in listed.items()}, indent=2))
        return
    session.emit("\n".join(f"{common.EXAMPLE}{key.partition('/')[2]:<40} {path}" for key, path in listed.items()))


def _schedule(path: str, of: str | None) -> dict[str, Any] | None:
    """Read the document if it is a schedule, otherwise return None."""
    from remat.errors import InstanceError
    from remat.schedule.document import SCHEMAS
    from remat.schedule.reading import read_schedule

    if path.startswith(common.EXAMPLE) or path == common.STANDARD_STREAM:
        return None
    says_so = False
    try:
        # The beginning shows whether a document is a schedule, so that other documents are not read twice.
        says_so = any(_begins_as(path, schema) for schema in SCHEMAS)
        if of is None and not says_so:
            return None
        document = read_schedule(path)
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
    view: str | None,
) -> Examined:
    """Find the instance of a schedule, and verify the schedule."""
    from remat.solving.verifying import examine

    if plot is not None:
        common.check_distinct({"SCHEDULE": path, "--of": of, "--machine": machine, "--plot": plot})
        common.check_writable("--plot", plot)
        common.check_plot(plot, view)
    loaded = common.load_instance(of) if of is not None else common.instance_of_schedule(document, path)
    examined = examine(loaded, document, machine=common.load_machine_option(machine, loaded.units.build()))
    session.remark(f"loaded {loaded.kind} {loaded.name or '(unnamed)'} and its schedule")
    return examined


def _plot(examined: Examined, path: str | None, view: str | None) -> None:
    common.check_view(view, path, examined.instance.kind)
    from remat.report.plot.schedule import plot

    assert path is not None
    plot(examined.as_result(), path, view=view or "time")


def _print_answer(session: Session, document: dict[str, Any], asked: _Given) -> None:
    """Print the contents of the file of an infeasible or unknown answer."""
    units = None if asked.of is None else common.load_instance(asked.of).units.build()
    if asked.format_ == "json":
        emit(json.dumps(document, indent=2, ensure_ascii=False, default=float))  # the reader returns decimals
    else:
        from remat.report.text.stated_answer import stated_answer

        session.emit(stated_answer(document, units))


def _print_schedule(session: Session, examined: Examined, format_: str) -> None:
    if format_ == "json":
        from remat.report.text.schedule_view import to_dict

        emit(json.dumps(to_dict(examined), indent=2, ensure_ascii=False))
    else:
        from remat.report.text.schedule_view import schedule_view

        session.emit(schedule_view(examined))


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
        from remat.report.text.facts import facts_table

        session.emit(facts_table(facts))
