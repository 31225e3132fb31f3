"""`remat export`: schedules in formats of other programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, writing

HELP = """Write a schedule in the format of another program.

pipeline-csv: the orders of a pipeline's schedule as a CSV of torch.distributed.pipelining. Each row is a device, each
cell an operation: F and B, or F, I and W if a backward has two halves. The schedule is verified first.

table: one row for each run, with its module, operator and source line if the instance has them. It also takes a plan
file of remat.torch.

torch-checkpoint, torchtitan, megatron, layer-ids, flagscale: the closest checkpointing policy of PyTorch, torchtitan,
Megatron-LM, Primus or FlagScale. All take schedules of chains; the last three also take orders of pipelines.

torch-sac: selective checkpointing of a captured PyTorch step.

Policies are verified. Notes give the policy's peak and time, and the decisions that it cannot express.

host-program: a schedule with a host as a list of the operations run, offload, reload and wait, in the order in which
the host issues them. Copies move to positions between runs; a note gives the cost.

\b
  remat solve pipeline.json -a 1f1b -o 1f1b.json
  remat export 1f1b.json --of pipeline.json --as pipeline-csv -o 1f1b.csv
  remat export 1f1b.json --of pipeline.json --as pipeline-csv --transfers grouped
  remat verify pipeline.json 1f1b.csv
  remat export schedule.json --of step.json --as table
  remat export schedule.json --of chain.json --as torch-checkpoint -o checkpointing.py

--transfers adds sends and receives to pipeline-csv. With grouped, a device posts all transfers between two operations
at once; with single, one at a time, with an empty cell between two. Orders that would deadlock are refused."""

POLICIES = ("torch-checkpoint", "torch-sac", "torchtitan", "megatron", "layer-ids", "flagscale")
"""Formats that take a checkpointing policy instead of a schedule."""

FORMATS = ("pipeline-csv", "table", "host-program", *POLICIES)
PLAN = "remat.plan/1"
"""Schema of the plans of `remat.torch`, which hold a schedule."""


@click.command("export", help=HELP)
@click.argument("schedule", type=click.Path())
@click.option("--of", metavar="INSTANCE", help="Instance of the schedule. [default: found if shipped]")
@click.option("--as", "format_", type=click.Choice(FORMATS), required=True, help="Output format.")
@click.option(
    "--transfers",
    type=click.Choice(("none", "grouped", "single")),
    default="none",
    show_default=True,
    help="Transfers to list: none, or the mode of sends and receives.",
)
@click.option("-o", "--output", metavar="FILE", default="-", help="Output file (.gz too); - is standard output.")
@common.verbosity_options
@click.pass_obj
def command(session: Session, /, schedule: str, of: str | None, format_: str, transfers: Any, output: str) -> int:
    """Verify the schedule, and write it."""
    common.one_standard_input({"SCHEDULE": schedule, "--of": of})
    common.check_distinct({"SCHEDULE": schedule, "--of": of, "--output": output})
    if output != common.STANDARD_STREAM:
        common.check_writable("--output", output)
    from remat.documents import write_text
    from remat.errors import OptionError
    from remat.solving.verifying import examine

    document = common.load_schedule(schedule)
    if document.get("schema") == PLAN:
        document = document["schedule"]
    loaded = common.load_instance(of) if of is not None else common.instance_of_schedule(document, schedule)
    examined = examine(loaded, document)
    if format_ != "pipeline-csv":
        if transfers != "none":
            raise OptionError(f"{format_} has no transfers", argument="transfers")
        if not examined.report.ok:
            raise OptionError("the schedule breaks rules (remat verify names them), so it is not exported")
    lines: Iterable[str]
    if format_ == "table":
        from remat.report.text.run_table import run_table

        lines = (f"{line}\n" for line in run_table(examined))
    elif format_ == "host-program":
        from remat.solving.host_order.moving import move

        moved = move(examined.as_result())
        session.note(moved.summary)
        lines = moved.document_lines()
    elif format_ in POLICIES:
        from remat.bridges.checkpointing.exporting import export_policy

        exported = export_policy(examined, format_)
        for note in exported.notes if output != common.STANDARD_STREAM else ():  # the text contains them
            session.note(note)
        lines = [exported.text]
    else:
        from remat.bridges.pipelining.actions import csv_lines
        from remat.bridges.pipelining.exporting import export_csv

        made = export_csv(examined, transfers=transfers)
        for note in made.notes:
            session.note(note)
        lines = csv_lines(made.rows)
    if output == common.STANDARD_STREAM:
        with writing():
            write_text(output, lines)
    else:
        write_text(output, lines)
    return ExitCode.OK
