"""`remat generate`: make an instance of a family; the options come from the catalogue `remat.generate.FAMILIES`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, writing
from remat.cli.parameters import naming_option, option_of
from remat.errors import OptionError
from remat.generate import KINDS, families, find, generate_rows
from remat.generate.document import Rows

HELP = """Make an instance: random, synthetic, or of a real architecture.

\b
  remat generate chain --help                                the families of a kind
  remat generate chain --family transformer --help           the parameters of a family
  remat generate chain --family transformer --layers 24 --batch 4 -o net.json
  remat generate chain --config config.json --batch 8 --sequence 4096 --device H100 -o net.json
  remat generate tree --family random --nodes 1000 --seed 7 | remat solve -

The same command makes the same instance on every platform. The instance records it in `source`."""


CONFIGURED = "model"
"""The family that --config selects."""


class _KindCommand(click.Command):
    """The command of one kind; it adds the options of the family as soon as the family is known."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the general options and the options of the chosen family."""
        own = super().get_params(ctx)
        family = ctx.meta.get("remat.family")
        return [*own[:1], *[option_of(p) for p in family.parameters], *own[1:]] if family is not None else own

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look for the family first."""
        name = _named_family(args)
        if name is not None:
            try:
                ctx.meta["remat.family"] = find(str(self.name), name)
            except ValueError as error:
                if not ctx.resilient_parsing:
                    raise click.UsageError(f"--{error}", ctx) from None
        elif not ctx.resilient_parsing and not {"-h", "--help"} & set(args):
            known = ", ".join(family.name for family in families(str(self.name)))
            raise click.UsageError(f"--family is missing; it is one of {known}", ctx)
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the family's line, or the list of families."""
        family = ctx.meta.get("remat.family")
        if family is not None:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"{family.name}: {family.summary}")
            return
        super().format_help_text(ctx, formatter)
        with formatter.section("Families"):
            formatter.write_dl([(family.name, family.summary) for family in families(str(self.name))])
        formatter.write_paragraph()
        formatter.write_text(f"{ctx.command_path} --family NAME --help lists the parameters of a family.")


def _named_family(args: list[str]) -> str | None:
    configured = None
    for index, word in enumerate(args):
        if word == "--":
            return configured
        if word == "--config" or word.startswith("--config="):
            configured = CONFIGURED
        if word == "--family" and index + 1 < len(args):
            return args[index + 1]
        if word.startswith("--family="):
            return word.partition("=")[2]
    return configured


def _complete_family(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    listed = [CompletionItem(family.name, help=family.summary) for family in families(str(ctx.command.name))]
    return [item for item in listed if item.value.startswith(incomplete)]


@click.group("generate", help=HELP, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> int:
    """Print the help where no kind is named."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return ExitCode.OK


def _kind_command(kind: str) -> click.Command:
    @click.command(kind, cls=_KindCommand, help=f"Make an instance of kind {kind}.")
    @click.option("--family", metavar="NAME", shell_complete=_complete_family, help="Family of instances.")
    @click.option("--name", metavar="TEXT", help="Name of the instance. [default: from the family]")
    @common.instance_output_option
    @common.verbosity_options
    @click.pass_obj
    def make(
        session: Session,
        /,
        family: str | None,
        name: str | None,
        output: str,
        **parameters: int | float | str | bool | None,
    ) -> int:
        if output != common.STANDARD_STREAM:
            common.check_writable("--output", output)
        chosen = find(kind, CONFIGURED if family is None else family)  # `parse_args` has found one of both
        given = {key: value for key, value in parameters.items() if value is not None}
        try:
            document = generate_rows(kind, chosen.name, name=name, **given)
        except ValueError as error:
            raise OptionError(naming_option(str(error), chosen)) from None
        session.remark(f"generated {document.get('name')}")
        write_instance(document, output)
        return ExitCode.OK

    return make


for _kind in KINDS:
    command.add_command(_kind_command(_kind))


def write_instance(document: Mapping[str, Any], output: str) -> None:
    """Write a generated instance to a file, or to standard output."""
    from remat.documents import write_text

    if output == common.STANDARD_STREAM:
        with writing():
            write_text(output, _rendered(document))
    else:
        write_text(output, _rendered(document))


def _rendered(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON text with one line for each key and for each entry of a list of objects."""
    separator = "{\n"
    for key, value in document.items():
        yield f"{separator} {json.dumps(key)}: "
        if isinstance(value, Rows) or (isinstance(value, list) and value and isinstance(value[0], dict)):
            before = "[\n  "
            for entry in value:
                yield before + json.dumps(entry)
                before = ",\n  "
            yield "\n ]"
        else:
            yield json.dumps(value)
        separator = ",\n"
    yield "\n}\n"
