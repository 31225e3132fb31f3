"""`remat algorithms`: list the registered algorithms, or explain one with its options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit
from remat.errors import OptionError
from remat.plugin.registry import KINDS, PLUG_INS
from remat.report.text.columns import aligned, room

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from remat.plugin.registry import Algorithm


HELP = """List the algorithms with the kinds of instance that they solve, their guarantees and their costs.

The list is grouped by family: adjoint (time loops), chain, dag (task graphs), tree, offload (a second memory),
parallel (several devices), joint (several of these decisions), layout (addresses), and plug-ins.
--family NAME lists one of them; -v adds complexity and reference.
With NAME, explain one algorithm and list its options for `remat solve --option KEY=VALUE`.
With auto, the default of `remat solve`, list the algorithms that it runs.

\b
  remat algorithms --kind chain
  remat algorithms --family offload
  remat algorithms rotor
  remat algorithms auto"""

AUTO = "auto"


@click.command("algorithms", help=HELP)
@click.argument("name", required=False, shell_complete=common.complete_algorithm)
@click.option("--kind", type=click.Choice(KINDS), help="List only algorithms for this kind of instance.")
@click.option("--family", metavar="NAME", help="List only one family, such as chain, offload or plug-ins.")
@common.format_option("table", "json")
@common.verbosity_options
@click.pass_obj
def command(session: Session, name: str | None, kind: str | None, family: str | None, format_: str) -> int:
    """Print the list, or one entry."""
    from remat.plugin.registry import algorithms

    if name is None:
        listed = _of_family(algorithms(kind), family)
        if format_ == "json":
            emit(json.dumps([_entry(algorithm) for algorithm in listed], indent=2, ensure_ascii=False))
        elif not listed and family is not None:
            session.emit(f"no algorithms of the family {family} are installed")
        else:
            session.emit(_detailed(listed) if session.verbose else _by_family(listed))
        return ExitCode.OK
    if family is not None:
        raise OptionError("it selects from the list, and NAME is one algorithm", argument="family")
    if name == AUTO:
        _show_auto(session, kind, format_)
        return ExitCode.OK
    algorithm = _find(name, kind)
    if format_ == "json":
        emit(json.dumps(_entry(algorithm) | {"options": _options(algorithm)}, indent=2, ensure_ascii=False))
    else:
        from remat.report.text.summary import table

        session.emit(table(_lines(algorithm)))
    return ExitCode.OK


def _of_family(listed: Sequence[Algorithm], family: str | None) -> Sequence[Algorithm]:
    """Return the algorithms of one family, or all."""
    from remat.messages import nearest
    from remat.plugin.registry import algorithms

    if family is None:
        return listed
    asked = family.strip().lower()
    chosen = [algorithm for algorithm in listed if algorithm.family == asked]
    known = sorted({algorithm.family for algorithm in algorithms()} | {PLUG_INS})
    if not chosen and asked not in known:
        near = nearest(asked, known)
        hint = f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"
        raise OptionError(f"unknown family {family!r}; {hint}", argument="family")
    return chosen


def _show_auto(session: Session, kind: str | None, format_: str) -> None:
    """Print the algorithms that `auto` runs, for one kind or for all."""
    from remat.plugin.selection import declared

    kinds = KINDS if kind is None else (kind,)
    if format_ == "json":
        entries = [
            {
                "kind": each,
                "group": group,
                "algorithm": candidate.algorithm.name,
                "options": dict(candidate.trial.options),
                "when": candidate.trial.when,
                "covered_by": list(candidate.algorithm.covered_by),
            }
            for each in kinds
            for group, candidate in declared(each)
        ]
        emit(json.dumps({"name": AUTO, "asks": entries}, indent=2, ensure_ascii=False))
    else:
        from remat.report.text.summary import table

        session.emit(table(_auto_lines(kinds)))


def _auto_lines(kinds: Sequence[str]) -> Iterator[tuple[str, str]]:
    from remat.plugin.selection import declared

    yield "algorithm", AUTO
    yield "summary", "the default: runs several algorithms, and returns the best schedule and the best bound"
    yield "asks", "early and cheap algorithms first, then those with an end, then anytime algorithms"
    for kind in kinds:
        title = kind
        for group, candidate in declared(kind):
            if candidate.algorithm.covered_by:
                continue
            given = "".join(f" with {name}={value}".lower() for name, value in candidate.trial.options.items())
            when = f": {candidate.trial.when}" if candidate.trial.when else ""
            yield title, f"{group} {candidate.algorithm.name}{given}{when}"
            title = ""
    yield "more", "docs/explanation/auto.md"


def _find(name: str, kind: str | None) -> Algorithm:
    from remat.messages import listing, nearest
    from remat.plugin.registry import algorithms

    known = {algorithm.name: algorithm for algorithm in algorithms()}
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean {near!r}?" if near else f"known are {listing(known)}"
        raise OptionError(f"unknown algorithm {name!r}; {hint}")
    if kind is not None and not known[name].accepts(kind):
        raise OptionError(f"{name!r} solves {_kinds(known[name])}, not {kind}", argument="kind")
    return known[name]


def _entry(algorithm: Algorithm) -> dict[str, Any]:
    return {
        "name": algorithm.name,
        "family": algorithm.family,
        "kinds": list(algorithm.kinds),
        "summary": algorithm.summary,
        "guarantee": algorithm.guarantee,
        "within": algorithm.within,
        "complexity": algorithm.complexity,
        "reference": algorithm.reference,
        "deviates": algorithm.deviates,
        "needs_slack": algorithm.needs_slack,
        "promise": algorithm.promise,
        "several_memories": algorithm.several_memories,
        "anytime": algorithm.anytime,
        "sweep": bool(algorithm.sweep),
        "stream": bool(algorithm.stream),
        "available": algorithm.is_available(),
        "missing": list(algorithm.missing()),
    }


NONE = "no algorithms are installed"

SUMMARY_COLUMNS = 100
"""Width of the list by family in columns; a narrower terminal reduces it."""

NARROW_SUMMARY = 30
"""Smallest width of a summary in columns; in a narrower terminal, the summary moves below the name."""


def _by_family(listed: Sequence[Algorithm]) -> str:
    """Return one table for each family; narrow terminals show the summaries below the names."""
    import textwrap

    from remat.report.text.columns import text_width

    if not listed:
        return NONE
    families: dict[str, list[Algorithm]] = {}
    for algorithm in listed:
        families.setdefault(algorithm.family, []).append(algorithm)
    cells = {a.name: (a.name, _kinds(a), a.guarantee) for a in listed}
    widths = [max(len(row[k]) for row in cells.values()) for k in range(3)]
    columns, indent = text_width(SUMMARY_COLUMNS), 2 + sum(widths) + 2 * len(widths)
    below = columns - indent < NARROW_SUMMARY
    indent = 6 if below else indent
    lines: list[str] = []
    for family, members in sorted(families.items(), key=lambda one: (one[0] == PLUG_INS, one[0])):
        lines += ["", family.upper()] if lines else [family.upper()]
        for algorithm in members:
            missing = algorithm.missing()
            summary = algorithm.summary + (f" (needs {', '.join(missing)})" if missing else "")
            wrapped = [" " * indent + line for line in textwrap.wrap(summary, columns - indent)]
            row = "  ".join(cell.ljust(width) for cell, width in zip(cells[algorithm.name], widths, strict=True))
            if below:
                lines += [f"  {row.rstrip()}", *wrapped]
            else:
                lines += [f"  {row}  {wrapped[0].lstrip()}", *wrapped[1:]]
    return "\n".join(lines)


def _detailed(listed: Sequence[Algorithm]) -> str:
    """Return the list in columns, with complexity and reference."""
    if not listed:
        return NONE
    rows = [("NAME", "KINDS", "GUARANTEE", "COMPLEXITY", "REFERENCE", "AVAILABLE")]
    rows += [
        (a.name, _kinds(a), a.guarantee, a.complexity or "-", a.reference or "-", _availability(a)) for a in listed
    ]
    return aligned(rows, left=range(len(rows[0])), width=room())


def _lines(algorithm: Algorithm) -> Iterator[tuple[str, str]]:
    yield "algorithm", algorithm.name
    yield "summary", algorithm.summary
    yield "family", algorithm.family
    yield "kinds", _kinds(algorithm)
    yield "guarantee", algorithm.promise
    yield "complexity", algorithm.complexity or "-"
    yield "reference", algorithm.reference or "-"
    yield "deviates", algorithm.deviates or "-"
    yield "slack", algorithm.needs_slack or "none: the peak of its schedule is enough"
    yield "memories", "several" if algorithm.several_memories else "the first processor's"
    yield "anytime", "yes: returns its best schedule at --time-limit or Ctrl-C" if algorithm.anytime else "no"
    yield "sweep", "answers many budgets at once" if algorithm.sweep else "one solve per budget"
    yield "stream", "yields steps one by one" if algorithm.stream else "no"
    yield "available", _availability(algorithm)
    options = _options(algorithm) if algorithm.is_available() else []
    if not options:
        yield "options", "none" if algorithm.is_available() else "unknown until it is available"
    for k, option in enumerate(options):
        about = f"{option['name']} ({option['type']}, default {json.dumps(option['default'])})"
        yield "options" if k == 0 else "", about + (f": {option['help']}" if option["help"] else "")


def _kinds(algorithm: Algorithm) -> str:
    from remat.plugin.registry import ANY_KIND

    return "any" if ANY_KIND in algorithm.kinds else ", ".join(algorithm.kinds)


def _availability(algorithm: Algorithm) -> str:
    missing = algorithm.missing()
    return f"needs {', '.join(missing)}" if missing else "yes"


def _options(algorithm: Algorithm) -> list[dict[str, Any]]:
    model = algorithm.load_options()
    if model is None:
        return []
    schema = model.model_json_schema().get("properties", {})
    return [_option(name, info, schema.get(name, {})) for name, info in model.model_fields.items()]


def _option(name: str, info: FieldInfo, schema: dict[str, Any]) -> dict[str, Any]:
    default = None if info.is_required() else info.get_default(call_default_factory=True, validated_data={})
    return {
        "name": name,
        "type": _type(schema),
        "required": info.is_required(),
        "default": default if isinstance(default, (bool, int, float, str, type(None))) else str(default),
        "help": info.description or "",
    }


def _type(schema: dict[str, Any]) -> str:
    """Name an option's type as people read it, with its range."""
    if "enum" in schema:
        return " | ".join(str(choice) for choice in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(_type(part) for part in schema["anyOf"])
    if "const" in schema:
        return str(schema["const"])
    name = "none" if schema.get("type") == "null" else str(schema.get("type", "text"))
    limits = [
        f"{sign} {schema[key]}"
        for key, sign in (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))
        if key in schema
    ]
    return " ".join([name, *limits])
