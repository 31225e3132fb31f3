"""Text of error messages: printable, on one line, and of limited length."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST_MESSAGE = 300
"""Maximum number of characters of a message, including quoted names and values."""

LONGEST_PATH = 120
"""Maximum characters of a JSON path."""

LONGEST_LISTING = 160
"""Maximum characters of a list of names in a message."""

LONGEST_WORD = 60
"""Maximum characters of a name or a value in a message."""

_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")
_LINES = str.maketrans("", "", "\n")


def elided(text: str, longest: int = LONGEST_WORD) -> str:
    """Return a text of at most `longest` characters: an ellipsis replaces the middle of a longer one."""
    if len(text) <= longest:
        return text
    tail = (longest - 3) // 3
    return f"{text[: longest - 3 - tail]}...{text[-tail:]}"


def article(noun: str) -> str:
    """Return a noun with its indefinite article: ``an adjoint``."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def listing(names: Iterable[str], longest: int = LONGEST_LISTING) -> str:
    """Join names with commas: as many as fit into `longest` characters, then the number of the others."""
    shown: list[str] = []
    left = longest
    names = [*names]
    for name in map(elided, names):
        left -= len(name) + 2
        if left < 0 and shown:
            return f"{', '.join(shown)} and {len(names) - len(shown):,} more"
        shown.append(name)
    return ", ".join(shown)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 step``, ``2 steps``, ``3 memories``, ``4 micro-batches``."""
    return f"{count:,} {noun_of(count, noun)}"


def noun_of(count: int, noun: str) -> str:
    """Return a regular noun in the number that a count asks for."""
    if count == 1:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in tuple("aeiou"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name that is probably meant by `name`; None if none is near.

    A known name is near if few slips separate it from `name`: one in a short word, two from six letters, three from
    eleven. A slip is a missing, an additional or a different letter, or two swapped letters; case is ignored.
    """
    if not isinstance(name, str) or len(name) > LONGEST_WORD:
        return None
    import difflib

    by_lower = {one.lower(): one for one in known}
    asked = name.lower()
    limit = 1 + (len(asked) > _SHORT) + (len(asked) > 2 * _SHORT)
    close = difflib.get_close_matches(asked, by_lower, n=_CLOSE)
    found = [(slips, rank) for rank, one in enumerate(close) if (slips := _slips(asked, one)) <= limit]
    return by_lower[close[min(found)[1]]] if found else None


def unknown_memory(name: object, known: Iterable[str]) -> str:
    """Return the message for a memory that a machine does not have."""
    known = [*known]
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near is not None else f"this machine has {listing(map(repr, known))}"
    return f"unknown memory {brief(name)}; {hint}"


_SHORT, _CLOSE = 5, 5


def _slips(one: str, other: str) -> int:
    """Return the number of insertions, deletions, substitutions and swaps of adjacent letters (restricted Damerau)."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, another in enumerate(other, 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != another))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == another:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        before, last = last, row
    return last[-1]


def one_line(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return a message as one printable line of at most `longest` characters.

    Line breaks and control characters are escaped. If the message is too long, it first shortens the middle of long
    words (names, paths, values), then the message.
    """
    if len(text) > longest:
        text = elided(_LONG_WORD.sub(lambda word: elided(word[0]), text), 2 * longest)
    return elided(printable(text), longest)


def first_line(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return the first line of a text that is not blank, cut to `longest` characters; empty if there is none."""
    return next(filter(None, map(str.strip, text.splitlines())), "")[:longest]


def reason(error: BaseException, longest: int = LONGEST_MESSAGE) -> str:
    """Return the type of an exception of other code, and the first line of its message if it has one."""
    line = first_line(str(error), longest)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text that is safe for a terminal: control characters are escaped as in JSON.

    With `lines`, line breaks stay. A JSON text stays the same JSON: these characters occur only inside its strings.
    """
    if (text.translate(_LINES) if lines else text).isprintable():
        return text
    return "".join(letter if letter.isprintable() or (lines and letter == "\n") else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    short = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(letter)
    if short is not None:
        return short
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def brief(value: object) -> str:
    """Return a short text for a value from a document or a command line, however large or deep it is."""
    if isinstance(value, (dict, list, tuple)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    if isinstance(value, str):
        return elided(repr(elided(value)), LONGEST_WORD + 2)
    from decimal import Decimal

    return elided(str(value) if isinstance(value, (int, float, Decimal)) else repr(value))
