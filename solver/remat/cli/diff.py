"""`remat diff`: two schedules of one instance, side by side."""

from __future__ import annotations

import json
from typing import Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit

HELP = """Compare two schedules of one instance: the figures that the verifier measures, and the decisions that differ.

\b
  remat solve example:resnet50 -b 1GiB -qo one.json
  remat solve example:resnet50 -b 2GiB -qo two.json
  remat diff one.json two.json
  remat diff a.json b.json --of net.json       an instance that is not shipped

Exit code 0: both are valid. 6: at least one breaks a rule."""


@click.command("diff", help=HELP)
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@click.option("--of", metavar="INSTANCE", help="Instance of the schedules. [default: found if shipped]")
@common.format_option("table", "json")
@common.verbosity_options
@click.pass_obj
def command(session: Session, first: str, second: str, of: str | None, format_: str) -> int:
    """Verify both, and print them side by side."""
    common.one_standard_input({"FIRST": first, "SECOND": second, "--of": of})
    from remat.report.text.schedule_diff import diff_table, differences
    from remat.solving.verifying import examine

    documents = [common.load_schedule(path) for path in (first, second)]
    loaded = common.instance_of_schedule(documents[0], first) if of is None else common.load_instance(of)
    one, other = (examine(loaded, document) for document in documents)
    if format_ == "json":
        emit(json.dumps(differences(one, other), indent=2, ensure_ascii=False))
    elif not session.quiet:
        with common.sizes_as_limits(one.machine):
            emit(diff_table(one, other, _names(first, second)))
    return ExitCode.OK if one.report.ok and other.report.ok else ExitCode.VIOLATION


def _names(first: str, second: str) -> Any:
    """Return the file names, with folders if the names are equal."""
    import os

    short = os.path.basename(first), os.path.basename(second)
    return short if short[0] != short[1] else (first, second)
