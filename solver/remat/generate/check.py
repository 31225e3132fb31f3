"""Checks of generator parameters: each refusal names the parameter, the figure and the remedy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from remat.messages import nearest

Number = int | float

LARGEST_SIZE = 2**62
"""Largest size, and largest total of sizes, in one instance (`remat.instance/1`)."""

LARGEST_COUNT = 10_000_000
"""Maximum number of stages, tasks, values or tree nodes in one instance."""


def integer(name: str, value: object, *, minimum: int = 0, maximum: int = LARGEST_SIZE) -> int:
    """Return an integer parameter after checking its range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {_shown(value)}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {_shown(value)}")
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, not {_shown(value)}")
    return value


def number(name: str, value: object, *, positive: bool = False, minimum: Number = 0) -> Number:
    """Return a finite number >= `minimum` (and > 0); whole numbers come back as `int`, so that results stay exact."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, not {_shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {value}")
    if value < minimum or (positive and value == 0):
        wanted = "positive" if positive else f"at least {minimum}"
        raise ValueError(f"{name} must be {wanted}, not {_shown(value)}")
    if value > 1e300:
        raise ValueError(f"{name} must be at most 1e300, not {_shown(value)}")
    return int(value) if value == int(value) and value <= LARGEST_SIZE else float(value)


def probability(name: str, value: object) -> float:
    """Return a number between 0 and 1."""
    result = number(name, value)
    if result > 1:
        raise ValueError(f"{name} must lie between 0 and 1, not {_shown(value)}")
    return float(result)


def choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return one of `choices`; an integer counts as the text of its digits."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and text in choices:
        return text
    raise ValueError(f"{name} must be one of {', '.join(choices)}, not {_shown(value)}{suggestion(value, choices)}")


def bounds(low: str, least: object, high: str, most: object, *, minimum: int = 0) -> tuple[int, int]:
    """Return an integer range, both ends included, given by two parameters."""
    first = integer(low, least, minimum=minimum)
    last = integer(high, most, minimum=minimum)
    if first > last:
        raise ValueError(f"{low} {first} is above {high} {last}; swap them or widen the range")
    return first, last


def seed(value: object) -> int:
    """Return a seed: Python seeds by the absolute value, so negative ones would repeat the positive."""
    return integer("seed", value)


def total(sizes: Iterable[int], remedy: str) -> None:
    """Refuse sizes whose total is beyond the format's bound."""
    found = sum(sizes)
    if found > LARGEST_SIZE:
        raise ValueError(f"the sizes total {found:.3e}, above the largest total 2^62 = {LARGEST_SIZE:.3e}; {remedy}")


def text(name: str, value: str, parse: Callable[[object], object]) -> str:
    """Return a size, time or bandwidth as it was written, after reading it."""
    try:
        parse(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return value


def known(given: Iterable[str], names: Iterable[str]) -> None:
    """Refuse parameter names that are not among `names`."""
    names = tuple(names)
    for name in given:
        if name not in names:
            listed = ", ".join(names)
            raise ValueError(f"unknown parameter {name!r}, known are {listed}{suggestion(name, names)}")


def suggestion(value: object, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` where a known name is close to `value`, else nothing."""
    near = nearest(value, known)
    return f"; did you mean {near!r}?" if near else ""


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    return f"{value!r:.60}"
