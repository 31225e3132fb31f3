"""`remat import`: instances from files of other formats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click

from remat.cli import common
from remat.cli.session import ExitCode, Session, writing

HELP = """Make an instance from a file of another format.

\b
  remat import matrix bcspwr10.mtx.gz -o bcspwr10.json
  remat import matrix FILE.mtx --ordering nd --relax 4 --symmetric --bytes 8 | remat solve -"""

MATRIX_HELP = """Make the assembly tree of a sparse matrix: the task tree of its multifrontal factorisation.

MTX is a Matrix Market file (.gz too). Its pattern is made symmetric, ordered, and its elimination tree is condensed to
supernodes: a node with eta columns and a contribution block of order cb has f = cb^2 and m = (eta + cb)^2 - cb^2.
Needs scipy: pip install 'remat[sparse]'."""

ORDERINGS = ("amd", "nd", "natural", "rcm")


@click.group("import", help=HELP, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> int:
    """Print the help where no format is named."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return ExitCode.OK


@dataclass(frozen=True, kw_only=True)
class _Matrix:
    """The options of the command, by click's names."""

    path: str
    ordering: str
    relax: int
    symmetric: bool
    factors: str
    entry_bytes: int | None
    name: str | None
    output: str


@command.command("matrix", help=MATRIX_HELP)
@click.argument("path", metavar="MTX", type=click.Path())
@click.option(
    "--ordering", type=click.Choice(ORDERINGS), default="amd", show_default=True, help="Order of the columns."
)
@click.option(
    "--relax",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    show_default=True,
    help="Nodes absorb children as long as they eliminate at most N columns.",
)
@click.option("--symmetric/--full", default=False, help="Whether fronts keep one triangle. [default: full]")
@click.option(
    "--factors",
    type=click.Choice(("out-of-core", "in-core")),
    default="out-of-core",
    show_default=True,
    help="In core, the factors count as static memory.",
)
@click.option(
    "--bytes",
    "entry_bytes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Bytes of an entry; without it sizes count entries.",
)
@click.option("--name", metavar="TEXT", help="Name of the instance [default: the file's, and the ordering].")
@click.option("-o", "--output", metavar="FILE", default="-", help="Where to write it (.gz too); - is standard output.")
@common.verbosity_options
@click.pass_obj
def matrix(session: Session, /, **given: Any) -> int:
    """Write the assembly tree of a matrix."""
    asked = _Matrix(**given)
    from remat.bridges.matrix_market.importing import import_matrix

    common.check_distinct({"MTX": asked.path, "--output": asked.output})
    if asked.output != common.STANDARD_STREAM:
        common.check_writable("--output", asked.output)
    document = import_matrix(
        asked.path,
        ordering=asked.ordering,
        relax=asked.relax,
        symmetric=asked.symmetric,
        factors_in_core=asked.factors == "in-core",
        entry_bytes=asked.entry_bytes,
        name=asked.name,
    )
    session.remark(document["description"])
    _write(document, asked.output)
    return ExitCode.OK


def _write(document: Mapping[str, Any], output: str) -> None:
    from remat.documents import write_text

    if output == common.STANDARD_STREAM:
        with writing():
            write_text(output, _lines(document))
    else:
        write_text(output, _lines(document))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON text, a line per key."""
    separator = "{\n"
    for key, value in document.items():
        yield f"{separator} {json.dumps(key)}: {json.dumps(value)}"
        separator = ",\n"
    yield "\n}\n"
