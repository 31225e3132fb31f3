"""Text of error messages: printable, on one line, and never longer than a fixed number of characters."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST_MESSAGE = 300
"""Characters of a message, whatever the names and values that it quotes."""

LONGEST_PATH = 120
"""Characters of a JSON path."""

LONGEST_LISTING = 160
"""Characters of a list of names in a message."""

LONGEST_WORD = 60
"""Characters that a message shows of a name or a value."""

_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")
_LINES = str.maketrans("", "", "\n")


def elided(text: str, longest: int = LONGEST_WORD) -> str:
    """Return a text of at most `longest` characters: an ellipsis replaces the middle of a longer one."""
    if len(text) <= longest:
        return text
    tail = (longest - 3) // 3
    return f"{text[: longest - 3 - tail]}...{text[-tail:]}"


def listing(names: Iterable[str], longest: int = LONGEST_LISTING) -> str:
    """Join names with commas: as many as `longest` characters hold, and the number of the others."""
    shown: list[str] = []
    left = longest
    names = [*names]
    for name in map(elided, names):
        left -= len(name) + 2
        if left < 0 and shown:
            return f"{', '.join(shown)} and {len(names) - len(shown):,} more"
        shown.append(name)
    return ", ".join(shown)


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name that somebody who wrote `name` probably meant; None if none is near.

    Near is one that a few slips turn into the other: one in a short word, two from six letters on, three from eleven
    on. A slip is a letter too few, too many, another one, or two swapped; case does not count.
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


_SHORT, _CLOSE = 5, 5


def _slips(one: str, other: str) -> int:
    """Return how many letters have to be put in, left out, changed or swapped with the next (restricted Damerau)."""
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

    Line breaks and control characters are escaped. Where the message is too long, long words (names, paths, values)
    lose their middle first, and then the message itself.
    """
    if len(text) > longest:
        text = elided(_LONG_WORD.sub(lambda word: elided(word[0]), text), 2 * longest)
    return elided(printable(text), longest)


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text as a terminal may show it: whatever would steer it is escaped as JSON does it.

    With `lines`, line breaks stay. What was JSON stays the same JSON: there such characters stand in strings only.
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
    """Show a value from a document or a command line in a few characters, however large or deep it is."""
    if isinstance(value, (dict, list, tuple)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    if isinstance(value, str):
        return repr(elided(value))
    from decimal import Decimal

    return elided(str(value) if isinstance(value, (int, float, Decimal)) else repr(value))
