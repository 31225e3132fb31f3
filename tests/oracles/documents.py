"""Read documents as people write them: sizes and times with units, and what may be left out.

Readings of the format where it is brief
----------------------------------------
- A time with a unit is converted to the instance's unit, and is an integer if it is a whole number of those. The same
  holds for a bandwidth.
- Steps of an adjoint have a forward time, a backward time and a state size of 1 by default.
- A `memory` is a size within a cluster only; elsewhere it is a name.
"""

import re
from decimal import Decimal
from fractions import Fraction

QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?) *([A-Za-z]*)(?:/(s|ms|us|ns))?")
SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}
PREFIX = {letter: power for power, letter in enumerate("kMGTPE", 1)} | {"K": 1}
NAMES = ("initial", "origin", "digest", "instance", "options")  # their keys are names, or mean nothing here


def plain(document):
    """Return an instance or schedule document with bare numbers, and with the defaults of an adjoint."""
    units = document.get("units") or {}
    found = _read(document, SECONDS.get(units.get("time", "s")), within=())
    if document.get("kind") == "adjoint":
        given = {key: value for key, value in found.items() if value is not None}
        found = {"forward_time": 1, "backward_time": 1, "state_size": 1} | given
    return found


def plain_schedule(schedule, document):
    """Return a schedule with bare numbers, in the units of its instance."""
    units = document.get("units") or {}
    return _read(schedule, SECONDS.get(units.get("time", "s")), within=())


def size(text):
    """Return the bytes that a size means."""
    return _quantity(text, None) if isinstance(text, str) else text


def _read(part, unit, within):
    if isinstance(part, list):
        return [_read(one, unit, within) for one in part]
    if isinstance(part, dict):
        return {
            key: value if key in NAMES else _read(value, unit, (*within, key)) if _has_texts(value) else value
            for key, value in part.items()
        }
    return _quantity(part, unit) if isinstance(part, str) and _is_quantity(within) else part


def _has_texts(value):
    return isinstance(value, (str, dict, list))


def _is_quantity(within):
    """Return whether these keys hold a size, a time or a bandwidth."""
    keys = within[-2:] if within and within[-1] not in ("name", "type") else ()
    if "memory" in within[-1:]:
        return "cluster" in within
    return any(
        key.endswith(("_size", "_time", "workspace"))
        or key in ("size", "time", "capacity", "static", "static_memory", "bandwidth", "codec", "latency", "delay")
        or key in ("start", "period", "bytes", "bucket", "makespan")
        for key in keys
    )


def _quantity(text, unit):
    match = QUANTITY.fullmatch(text.strip())
    if match is None:
        return text
    number, suffix, per = Fraction(Decimal(match[1])), match[2], match[3]
    if per:
        number = number * _bytes(suffix) * unit / SECONDS[per]
    elif suffix in SECONDS:
        number = number * SECONDS[suffix] / unit
    else:
        number *= _bytes(suffix)
    return int(number) if number.denominator == 1 else float(number)


def _bytes(suffix):
    """Return how many bytes a suffix such as GB or Gi means."""
    letters = suffix.removesuffix("B")
    if not letters:
        return 1
    return 1024 ** PREFIX[letters[0]] if letters.endswith("i") else 1000 ** PREFIX[letters[0]]
