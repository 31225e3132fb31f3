"""`remat generate`: make an instance of a family; the options come from the catalogue `remat.generate.FAMILIES`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import click
from click.shell_completion import CompletionItem

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, writing
from remat.errors import OptionError
from remat.generate import KINDS, Family, Parameter, families, find, generate_rows
from remat.generate.document import Rows
from remat.generate.options import LEAST_RATE, flag
from remat.messages import brief
from remat.units import parse_bandwidth, parse_size

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

_METAVARS = {"int": "INTEGER", "size": "SIZE", "float": "NUMBER", "str": "TEXT", "rate": "RATE"}


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _number(text: str) -> int | float:
    """Read a number; whole numbers, including ``1e6``, are exact."""
    try:
        exact = Decimal(text)
    except InvalidOperation:
        raise click.BadParameter(f"{brief(text)} is not a number") from None
    if not exact.is_finite() or abs(exact) > Decimal("1e300"):
        raise click.BadParameter(f"{brief(text)} is out of range")
    whole = abs(exact) < 2**63 and exact == exact.to_integral_value()
    return int(exact) if whole else float(exact)


def _rate(text: str) -> int | float:
    """Read a bandwidth such as ``12GB/s``; a bare number is in bytes/s, and a small one is refused as a mistake."""
    if not text.strip()[-1:].isalpha():
        value = _number(text)
        if isinstance(value, int) and 0 < value < LEAST_RATE:
            raise click.BadParameter(f"{text[:60]} bytes/s: did you mean {text[:60]}GB/s? If not, write {text[:60]}B/s")
        return value
    try:
        found = parse_bandwidth(text if "/" in text else f"{text}/s")
    except ValueError:
        raise click.BadParameter(f"{brief(text)} is not a bandwidth such as 12GB/s") from None
    assert found is not None
    return found


def _option(parameter: Parameter) -> click.Option:
    """Turn a parameter of a family into an option; without it, the value is None and the family's default applies."""
    default = parameter.default
    if parameter.type == "bool":
        shown = None if default is None else "yes" if default else "no"
        both = f"{parameter.option}/{parameter.option.replace('--', '--no-', 1)}"
        return click.Option([both], default=None, help=_described(parameter, shown))
    shown = None if default in (None, "") else str(default)
    if parameter.type == "rate" and isinstance(default, (int, float)):
        shown = f"{default / 1e9:g}GB/s"
    about = _described(parameter, shown)
    names = [parameter.option, *map(flag, parameter.aliases), parameter.name]
    if parameter.choices:
        return click.Option(names, type=click.Choice(parameter.choices), default=None, help=about)
    convert: Callable[[str], int | float | str] = str
    if parameter.type != "str":
        convert = {"size": _size, "rate": _rate}.get(parameter.type, _number)
    return click.Option(names, type=convert, metavar=_METAVARS[parameter.type], default=None, help=about)


def _described(parameter: Parameter, default: str | None) -> str:
    return parameter.help if default is None else f"{parameter.help} [default: {default}]"


class _KindCommand(click.Command):
    """The command of one kind; it adds the options of the family as soon as the family is known."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the general options and the options of the chosen family."""
        own = super().get_params(ctx)
        family = ctx.meta.get("remat.family")
        return [*own[:1], *[_option(p) for p in family.parameters], *own[1:]] if family is not None else own

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
            raise OptionError(_naming_option(str(error), chosen)) from None
        session.remark(f"generated {document.get('name')}")
        _write(document, output)
        return ExitCode.OK

    return make


for _kind in KINDS:
    command.add_command(_kind_command(_kind))


def _naming_option(message: str, family: Family) -> str:
    """Replace the parameter at the beginning of a message by its option."""
    for parameter in family.parameters:
        rest = message.removeprefix(parameter.name)
        if rest[:1] in (" ", ":") and rest != message:
            return parameter.option + rest
    return message


def _write(document: Mapping[str, Any], output: str) -> None:
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
