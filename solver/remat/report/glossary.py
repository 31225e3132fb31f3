"""The words of answers and pages, each in two sentences: what `remat explain` and docs/glossary.md print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from remat.plugin.proposal import ALL_SCHEDULES


@dataclass(frozen=True)
class Term:
    """A word.

    Attributes
    ----------
    name : str
        As it is asked for.
    meaning : str
        Two sentences.
    picture : str
        Lines of text; empty if there is none.
    page : str
        The document that says more; empty if there is none.
    also : tuple of str
        Other words for it, and pieces of the text of answers that it explains.
    """

    name: str
    meaning: str
    picture: str = ""
    page: str = ""
    also: tuple[str, ...] = ()


@cache
def all_terms() -> tuple[Term, ...]:
    """Return all terms, in the order of the page."""
    import tomllib  # where no word is asked for, nothing is read

    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["term"]
    return tuple(
        Term(
            one["name"],
            " ".join(one["meaning"].split()),
            one.get("picture", "").strip("\n"),
            one.get("page", ""),
            tuple(one.get("also", ())),
        )
        for one in listed
    )


def find_term(asked: str) -> Term | None:
    """Return the term of this name, or that is also called so; None if there is none."""
    wanted = asked.strip().lower().replace("_", " ")
    for term in all_terms():
        if wanted in (term.name, *term.also):
            return term
    return next((term for term in all_terms() if wanted.rstrip("s") == term.name.rstrip("s")), None)


def terms_in(*scopes: str | None) -> tuple[str, ...]:
    """Return the names of the terms that explain the classes of schedules of an answer."""
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


def explained(term: Term) -> Iterator[str]:
    """Yield paragraphs: what a term means, its picture, and where there is more."""
    yield f"{term.name}: {term.meaning}"
    if term.picture:
        yield "\n".join(f"    {line}".rstrip() for line in term.picture.split("\n"))
    if term.page:
        yield f"More: docs/{term.page}"


def page() -> str:
    """Return docs/glossary.md."""
    lines = [
        "# Glossary",
        "",
        "`remat explain TERM` prints one of these terms.",
        "",
    ]
    for term in all_terms():
        lines += [f"## {term.name}", "", term.meaning, ""]
        if term.picture:
            lines += ["```text", *(line.rstrip() for line in term.picture.split("\n")), "```", ""]
        if term.page:
            lines += [f"More: [{term.page}]({term.page})", ""]
    return "\n".join(lines)
