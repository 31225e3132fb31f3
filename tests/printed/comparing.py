"""Is what was printed what the page shows? Times of solving, dates and versions are masked."""

import re

REST = "..."
"""A line that matches any number of lines."""

MASKS = (
    (re.compile(r"^((?:solve |search |wall )time\s+)\S.*$"), r"\1<time>"),
    (re.compile(r"\b\d+(?:\.\d+){2}(?:\.dev\d+)?(?:\+\S+)?\b"), "<version>"),
    (re.compile(r"\b20\d\d-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?\b"), "<date>"),
)

FIGURE = re.compile(r"(?<![\w.])[-+]?\d[\d ,]*(?:\.\d+)? ?(?:%|[kMGT]?i?B|ns|us|ms|s|h)(?!\w)")
"""A number with its unit."""


def masked(line: str, masks: list[str]) -> str:
    """Return a line without what differs from run to run; widths of columns are no differences."""
    for pattern, by in MASKS:
        line = pattern.sub(by, line)
    for own in masks:
        line = re.sub(own, "<masked>", line)
    return re.sub(r"(?<=\S) {2,}", "  ", line.rstrip())


def difference(shown: list[str], printed: list[str], masks: list[str]) -> str | None:
    """Describe the first difference, or return None; `...` matches any lines."""
    expected = [masked(line, masks) for line in shown]
    found = [masked(line, masks) for line in printed]
    while found and not found[-1]:
        found.pop()
    parts: list[list[str]] = [[]]
    for line in expected:
        if line.strip() == REST:
            parts.append([])
        else:
            parts[-1].append(line)
    if len(parts) == 1:
        return None if expected == found else _first(expected, found)
    if found[: len(parts[0])] != parts[0]:
        return _first(parts[0], found[: len(parts[0])])
    at = len(parts[0])
    for part in parts[1:-1]:
        at = _find(part, found, at)
        if at < 0:
            return f"not printed: {part[0]!r} and what follows it"
        at += len(part)
    last = parts[-1]
    if last and (len(found) - at < len(last) or found[len(found) - len(last) :] != last):
        return _first(last, found[max(at, len(found) - len(last)) :])
    return None


def _find(part: list[str], found: list[str], first: int) -> int:
    return next((k for k in range(first, len(found) - len(part) + 1) if found[k : k + len(part)] == part), -1)


def _first(expected: list[str], found: list[str]) -> str:
    """Name the first line that differs."""
    for shown, printed in zip(expected, found, strict=False):
        if shown != printed:
            return f"shown:   {shown}\nprinted: {printed}"
    if len(expected) > len(found):
        return f"shown, and not printed: {expected[len(found)]}"
    return f"printed, and not shown: {found[len(expected)]}"


def missing_figures(comment: str, printed: str) -> list[str]:
    """Return the figures of a comment that the output does not have, to the digits that the comment gives."""
    had = {_squeezed(figure) for figure in FIGURE.findall(printed)}
    return [figure.strip() for figure in FIGURE.findall(comment) if _squeezed(figure) not in had]


def _squeezed(figure: str) -> str:
    return re.sub(r"[\s,+]", "", figure)
