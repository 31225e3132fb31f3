"""`remat explain`: the terms in answers and pages."""

from __future__ import annotations

import textwrap

import click
from click.shell_completion import CompletionItem

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit
from remat.errors import OptionError
from remat.messages import nearest
from remat.report.glossary import all_terms, explained, find_term, page
from remat.report.text.columns import text_width

HELP = """Explain a term of an answer or a page, or the name of a task such as Fe3, or list all terms.

\b
  remat explain                 all terms
  remat explain gap
  remat explain memory-persistent
  remat explain Fe3             what the letters of tasks and values mean
  remat explain --format markdown > glossary.md"""

WIDTH = 100
"""Largest width of a text in columns."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(term.name) for term in all_terms() if term.name.startswith(incomplete)]


@click.command("explain", help=HELP)
@click.argument("term", nargs=-1, shell_complete=_complete)
@common.format_option("table", "markdown")
@common.verbosity_options
@click.pass_obj
def command(session: Session, term: tuple[str, ...], format_: str) -> int:
    """Print one term, or all."""
    if format_ == "markdown":
        emit(page().rstrip("\n"))
        return ExitCode.OK
    wide = text_width(WIDTH)
    if not term:
        width = max(len(known.name) for known in all_terms())
        for known in all_terms():
            lines = textwrap.wrap(known.meaning, wide - width - 2)
            session.emit(f"{known.name:<{width}}  " + ("\n" + " " * (width + 2)).join(lines))
        return ExitCode.OK
    asked = " ".join(term)
    found = find_term(asked)
    if found is None:
        raise OptionError(f"unknown term {asked!r}; {_instead(asked)}")
    for paragraph in explained(found):
        drawn = paragraph.startswith(" ")
        session.emit(paragraph if drawn else textwrap.fill(paragraph, wide))
    return ExitCode.OK


def _instead(asked: str) -> str:
    """Say what to ask instead of an unknown term."""
    from remat.plugin.registry import algorithms

    if asked in {algorithm.name for algorithm in algorithms()}:
        return f"`remat algorithms {asked}` explains this algorithm"
    near = nearest(asked, [name for known in all_terms() for name in (known.name, *known.also)])
    return f"did you mean {near!r}?" if near else "`remat explain` lists the terms"
