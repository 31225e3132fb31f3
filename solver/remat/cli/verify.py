"""`remat verify`: check that a schedule is valid for its instance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit
from remat.errors import InstanceError, RematError, ScheduleForInstanceError

if TYPE_CHECKING:
    from remat.solving.verifying import Examined
    from remat.verifier import Report

HELP = """Check that a schedule is valid for its instance.

SCHEDULE is a JSON file (.gz too) of remat.schedule/1, or - for standard input. Steps without start times are placed
first. The machine is that of --machine, or of the schedule; a note reports differences from the instance's machine.
--budget replaces its capacities. A schedule that names another instance is refused, unless --any-instance is given.

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
@common.budget_option
@click.option("--any-instance", is_flag=True, help="Accept a schedule that was made for another instance.")
@common.format_option("table", "json")
@common.verbosity_options
@click.pass_obj
def command(
    session: Session,
    instance: str,
    schedule: str,
    machine: str | None,
    budget: tuple[str, ...],
    any_instance: bool,
    format_: str,
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
    capacities = common.split_budgets(budget) or None
    in_cells = schedule.removesuffix(".gz").endswith(".csv")
    document: Any = None if in_cells else common.load_schedule(schedule)
    session.remark(f"loaded {loaded.kind} {loaded.name or '(unnamed)'} and its schedule")
    model = common.load_machine_option(machine, units)
    if in_cells:
        from remat.bridges.pipelining.verifying import examine_csv

        examined = examine_csv(loaded, schedule, machine=model, budget=capacities)
    else:
        examined = examine(loaded, document, machine=model, budget=capacities, any_instance=any_instance)
    report = examined.report
    if format_ == "json":
        causes = {name: _step_name(examined, peak.step) for name, peak in report.peaks.items()}
        emit(json.dumps(_verdict(report, causes), indent=2, ensure_ascii=False))
    elif not session.quiet:
        from remat.report.text.verdict import verdict

        with common.sizes_as_limits(examined.machine):
            emit(verdict(report, others="--format json names them"))
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
