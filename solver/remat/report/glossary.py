"""The glossary, printed by `remat explain` and docs/reference/glossary.md: each term in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from remat.plugin.proposal import ALL_SCHEDULES

_NAME = re.compile(r"([A-Za-z]+)(?:[0-9]+(?:\.[0-9]+)*)?(?: of .*)?", re.ASCII)
"""The name of a task or value, with or without numbers, and perhaps its module: ``B17 of 16:Bottleneck``."""


@dataclass(frozen=True)
class Term:
    """A term of the glossary.

    Attributes
    ----------
    name : str
        Name by which `find_term` finds it.
    meaning : str
        One sentence.
    picture : str
        Drawing in lines of text; may be empty.
    page : str
        Document with more details; may be empty.
    also : tuple of str
        Synonyms, and fragments of answers that the term explains.
    names : tuple of str
        Letters of the names of tasks and values that it explains, with any numbers: ``Fe`` of ``Fe3`` and ``Fe3.1``.
    """

    name: str
    meaning: str
    picture: str = ""
    page: str = ""
    also: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@cache
def all_terms() -> tuple[Term, ...]:
    """Return all terms, in the order of the page."""
    import tomllib  # the file is read only if a term is needed

    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["term"]
    return tuple(
        Term(
            one["name"],
            " ".join(one["meaning"].split()),
            one.get("picture", "").strip("\n"),
            one.get("page", ""),
            tuple(one.get("also", ())),
            tuple(one.get("names", ())),
        )
        for one in listed
    )


def find_term(asked: str) -> Term | None:
    """Return the term with this name or synonym, or that explains the name of a task or value; otherwise None."""
    wanted = asked.strip().lower().replace("_", " ")
    for term in all_terms():
        if wanted in (term.name, *term.also):
            return term
    found = next((term for term in all_terms() if wanted.rstrip("s") == term.name.rstrip("s")), None)
    if found is not None:
        return found
    name = _NAME.fullmatch(asked.strip())
    letters = "" if name is None else name[1]
    return next((term for term in all_terms() if letters in term.names), None)


def terms_in(*scopes: str | None) -> tuple[str, ...]:
    """Return the names of the terms that define the classes of schedules of an answer."""
    found: dict[str, None] = {}
    for scope in filter(None, scopes):
        if scope == ALL_SCHEDULES:
            continue
        longest = max(
            ((piece, term) for term in all_terms() for piece in (term.name, *term.also) if piece in scope),
            key=lambda pair: len(pair[0]),
            default=None,
        )
        if longest is not None:
            found[longest[1].name] = None
        elif scope.startswith("the "):  # one schedule, which has a name
            found["strategy"] = None
    return tuple(found)


def drawn_terms(*scopes: str | None) -> tuple[str, ...]:
    """Return those of `terms_in` that say more than the answer does: they have a picture."""
    return tuple(term.name for term in all_terms() if term.picture and term.name in terms_in(*scopes))


def explained(term: Term) -> Iterator[str]:
    """Yield paragraphs: the meaning of a term, its picture, and the page with more details."""
    yield f"{term.name}: {term.meaning}"
    if term.picture:
        yield "\n".join(f"    {line}".rstrip() for line in term.picture.split("\n"))
    if term.page:
        yield f"More: docs/{term.page}"


def page() -> str:
    """Return docs/reference/glossary.md."""
    lines = [
        "# Glossary",
        "",
        "This page is the reference of terms. `remat explain TERM` prints one of them.",
        "",
    ]
    for term in all_terms():
        lines += [f"## {term.name}", "", term.meaning, ""]
        if term.picture:
            lines += ["```text", *(line.rstrip() for line in term.picture.split("\n")), "```", ""]
        if term.page:
            lines += [f"[More](../{term.page})", ""]
    return "\n".join(lines)
