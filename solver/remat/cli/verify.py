"""`remat verify`: check that a schedule is valid for its instance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit
from remat.errors import InstanceError, RematError, ScheduleForInstanceError

if TYPE_CHECKING:
    from remat.solving.verifying import Examined
    from remat.units import Units
    from remat.verifier import Report

MOST_LINKS = 8
"""Up to this number, all links are listed; beyond it, only links that transfer data."""

MOST_SHOWN = 20
"""Number of violations in the table; the JSON document has all that the verifier reports."""

HELP = """Check that a schedule is valid for its instance.

SCHEDULE is a JSON file (.gz too) of remat.schedule/1, or - for standard input. Steps without start times are placed
first. The machine is that of --machine, or of the schedule; a note reports differences from the instance's machine. A
schedule that names another instance is refused, unless --any-instance is given.

For a pipeline, SCHEDULE may be a CSV of torch.distributed.pipelining: one row for each device, with the layers split
evenly. Its sends and receives block both devices, in the order of the cells.

\b
  remat verify net.json schedule.json
  remat solve net.json -b 8GB -qo - | remat verify net.json -
  remat verify pipeline.json schedule.csv

Exit code 0: the schedule is valid. 6: it breaks rules."""


@click.command("verify", help=HELP)
@common.instance_argument
@click.argument("schedule", type=click.Path())
@common.machine_option
@click.option("--any-instance", is_flag=True, help="Accept a schedule that was made for another instance.")
@common.format_option("table", "json")
@common.verbosity_options
@click.pass_obj
def command(
    session: Session, instance: str, schedule: str, machine: str | None, any_instance: bool, format_: str
) -> int:
    """Verify and print the verdict."""
    common.one_standard_input({"INSTANCE": instance, "SCHEDULE": schedule, "--machine": machine})
    from remat.solving.verifying import examine

    try:
        loaded = common.load_instance(instance)
    except ScheduleForInstanceError:
        if _is_instance(schedule):
            raise InstanceError(f"the arguments are swapped; write: remat verify {schedule} {instance}") from None
        raise
    units = loaded.units.build()
    in_cells = schedule.removesuffix(".gz").endswith(".csv")
    document: Any = None if in_cells else common.load_schedule(schedule)
    session.remark(f"loaded {loaded.kind} {loaded.name or '(unnamed)'} and its schedule")
    model = common.load_machine_option(machine, units)
    if in_cells:
        from remat.bridges.pipelining.verifying import examine_csv

        examined = examine_csv(loaded, schedule, machine=model)
    else:
        examined = examine(loaded, document, machine=model, any_instance=any_instance)
    report = examined.report
    causes = {name: _step_name(examined, peak.step) for name, peak in report.peaks.items()}
    if format_ == "json":
        emit(json.dumps(_verdict(report, causes), indent=2, ensure_ascii=False))
    elif not session.quiet:
        from remat.report.text.summary import table

        shown = {name: _shown_step(examined, peak.step) for name, peak in report.peaks.items()}
        with common.sizes_as_limits(examined.machine):
            emit(table(_lines(report, units, shown)))
    return ExitCode.OK if report.ok else ExitCode.VIOLATION


def _is_instance(path: str) -> bool:
    """Whether an instance can be read from a path."""
    try:
        common.load_instance(path)
    except RematError:
        return False
    return True


def _step_name(examined: Examined, index: int | None) -> str:
    """Name a step for programs: the task that it runs, or the value that it moves."""
    from remat.schedule.document import Copy, Run, StepView

    if index is None:
        return "initial residency"
    step = StepView(examined.steps, examined.graph, examined.machine)[index]
    if isinstance(step, Run):
        return f"{step.task} (step {index})"
    return f"copy of {step.value} (step {index})" if isinstance(step, Copy) else f"drop (step {index})"


def _shown_step(examined: Examined, index: int | None) -> str:
    """Name a step for people."""
    from remat.report.text.readable_names import shown_step

    shown = shown_step(examined.graph, examined.machine, examined.steps, index, short=True)
    return shown if index is None else f"{shown} (step {index})"


def _lines(report: Report, units: Units, causes: dict[str, str]) -> Iterator[tuple[str, str]]:
    from remat.report.text.summary import peaks, times
    from remat.units import format_size, format_time

    count = len(report.violations)
    yield "verdict", "ok" if report.ok else f"{count} violation{'s' if count > 1 else ''}"
    for k, violation in enumerate(report.violations[:MOST_SHOWN]):
        yield "violations" if k == 0 else "", str(violation)
    if count > MOST_SHOWN:
        yield "", f"and {count - MOST_SHOWN} more (--format json names them)"
    yield from times(report, units)
    yield "recompute time", format_time(report.recompute_time, units)
    yield from peaks(report, units, causes)
    for k, (name, size) in enumerate(report.arenas.items()):
        yield "arena" if k == 0 else "", f"{name}: {format_size(size, units, both=True)}"
    many = len(report.transferred) > MOST_LINKS
    moved = [item for item in report.transferred.items() if item[1] or not many]
    for k, (link, size) in enumerate(moved):
        yield "transferred" if k == 0 else "", f"{link}: {format_size(size, units, both=True)}"
    if len(report.busy) > 1:
        shown = report.spans.keys() if many else report.idle.keys()
        for k, (resource, idle) in enumerate((name, report.idle[name]) for name in shown):
            yield "idle time" if k == 0 else "", f"{resource}: {format_time(idle, units)}"
    yield "steps", f"{len(report.start):,}"
    for k, note in enumerate(report.notes):
        yield "notes" if k == 0 else "", note


def _verdict(report: Report, causes: dict[str, str]) -> dict[str, Any]:
    from remat.report.text.summary import steady_document

    steady = {} if report.steady is None else {"steady": steady_document(report.steady)}
    return {
        **steady,
        "ok": report.ok,
        "violations": [{"step": v.step, "rule": v.rule, "message": v.message} for v in report.violations],
        "makespan": report.makespan,
        "recompute_time": report.recompute_time,
        "peak_memory": report.peak_memory,
        "peak_step": causes,
        **({"arenas": dict(report.arenas)} if report.arenas else {}),
        "transferred": dict(report.transferred),
        "idle": dict(report.idle),
        "overlap": dict(report.overlap),
        "steps": len(report.start),
        "notes": list(report.notes),
    }
