"""Parameters of a family of instances as options of commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, InvalidOperation

import click

from remat.generate.options import LEAST_RATE, Family, Parameter, flag
from remat.messages import brief
from remat.units import format_size, parse_bandwidth, parse_size

MOST_LETTERS = 50
"""Letters of choices that stand beside an option; help texts break lines, and options do not."""

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


def option_of(parameter: Parameter) -> click.Option:
    """Turn a parameter of a family into an option; without it, the value is None and the family's default applies."""
    default = parameter.default
    if parameter.type == "bool":
        shown = None if default is None else "yes" if default else "no"
        both = f"{parameter.option}/{parameter.option.replace('--', '--no-', 1)}"
        return click.Option([both], default=None, help=_described(parameter, shown))
    shown = None if default in (None, "") else str(default)
    if parameter.type == "size" and isinstance(default, int) and default:
        shown = format_size(default).replace(" ", "")
    if parameter.type == "rate" and isinstance(default, (int, float)):
        shown = f"{default / 1e9:g}GB/s"
    about = _described(parameter, shown)
    if parameter.many:
        return click.Option(
            [parameter.option],
            metavar="TEXT",
            multiple=True,
            default=None,
            callback=_joined,
            help=f"{about} May repeat.",
        )
    names = [parameter.option, *map(flag, parameter.aliases), parameter.name]
    if parameter.choices:
        many = sum(map(len, parameter.choices)) > MOST_LETTERS
        metavar = "NAME" if many else None
        if many:
            listed = f"{parameter.help} One of {', '.join(parameter.choices)}."
            about = _described(replace(parameter, help=listed), shown)
        return click.Option(names, type=click.Choice(parameter.choices), metavar=metavar, default=None, help=about)
    convert: Callable[[str], int | float | str] = str
    if parameter.type != "str":
        convert = {"size": _size, "rate": _rate}.get(parameter.type, _number)
    return click.Option(names, type=convert, metavar=_METAVARS[parameter.type], default=None, help=about)


def _described(parameter: Parameter, default: str | None) -> str:
    return parameter.help if default is None else f"{parameter.help} [default: {default}]"


def _joined(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str | None:
    return ",".join(given) if given else None


def naming_option(message: str, family: Family) -> str:
    """Replace the parameter at the beginning of a message by its option."""
    for parameter in family.parameters:
        rest = message.removeprefix(parameter.name)
        if rest[:1] in (" ", ":") and rest != message:
            return parameter.option + rest
    return message
