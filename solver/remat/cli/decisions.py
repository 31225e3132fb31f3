"""`remat decisions`: what a schedule keeps, recomputes, offloads and drops."""

from __future__ import annotations

import json

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit

HELP = """List the decision of a schedule for each value or stage: kept, recomputed, offloaded or dropped.

\b
  remat solve example:resnet50 -b 1GiB -qo plan.json
  remat decisions plan.json
  remat decisions plan.json --of net.json            an instance that is not shipped
  remat decisions plan.json --by stage               stages of chains, or stages and micro-batches of a pipeline
  remat decisions plan.json --format csv > values.csv

JSON and CSV number stages from 0; tables use the numbers in task names (F3).
The schedule must be valid; remat verify lists violations."""


@click.command("decisions", help=HELP)
@click.argument("schedule", type=click.Path())
@click.option("--of", metavar="INSTANCE", help="Instance of the schedule. [default: found if shipped]")
@click.option("--by", type=click.Choice(["value", "stage"]), default="value", help="Content of a row. [default: value]")
@common.format_option("table", "json", "csv")
@common.verbosity_options
@click.pass_obj
def command(session: Session, schedule: str, of: str | None, by: str, format_: str) -> int:
    """Verify the schedule, and list its decisions."""
    common.one_standard_input({"SCHEDULE": schedule, "--of": of})
    from remat.report.text.decisions import decisions_csv, decisions_table, stages_table
    from remat.solving.verifying import examine

    document = common.load_schedule(schedule)
    loaded = common.instance_of_schedule(document, schedule) if of is None else common.load_instance(of)
    result = examine(loaded, document).as_result()
    rows = result.decisions if by == "value" else result.stage_decisions
    if format_ == "json":
        emit(json.dumps(rows.to_dicts(), indent=2, ensure_ascii=False))
    elif format_ == "csv":
        emit(decisions_csv(rows).rstrip("\n"))
    elif not session.quiet:
        with common.sizes_as_limits(result.machine):
            emit(decisions_table(result) if by == "value" else stages_table(result))
    return ExitCode.OK
