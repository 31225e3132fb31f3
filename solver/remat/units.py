"""Sizes, times and bandwidths: exact parsing (Decimal, never float) and readable formatting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Literal

from remat.errors import QuantityError
from remat.messages import brief

Number = int | float
"""A time: an `int` stays an `int` throughout, anything else is a float64."""

LARGEST_SIZE = 2**62
"""Largest size, and largest total of sizes, that an instance may contain (bytes or units)."""

LARGEST_TIME = 10.0**300
"""Largest single time: sums over a schedule must be finite in float64."""

SMALLEST_BANDWIDTH = LARGEST_SIZE / LARGEST_TIME
"""Smallest bandwidth: a transfer of the largest size takes the largest time."""

LARGEST_TOTAL = 10.0**308
"""Largest time in a schedule: the sum of 10^8 of the largest times; one more is still finite."""

SIZE_ROUNDING = 1e-9
"""Relative rounding error of a binary float that counts as a whole size, such as 33.2 * 1e6."""

_SIZE_FACTORS = {"": 1, "B": 1}
for _power, _letter in enumerate("kMGTPE", start=1):
    _SIZE_FACTORS[f"{_letter}B"] = _SIZE_FACTORS[_letter] = 1000**_power
    _SIZE_FACTORS[f"{_letter.upper()}iB"] = _SIZE_FACTORS[f"{_letter.upper()}i"] = 1024**_power
_SIZE_FACTORS["KB"] = _SIZE_FACTORS["K"] = 1000

_TIME_FACTORS = {"ns": Decimal("1e-9"), "us": Decimal("1e-6"), "ms": Decimal("1e-3"), "s": Decimal(1)}
_DURATION_FACTORS = {**_TIME_FACTORS, "": Decimal(1), "m": Decimal(60), "min": Decimal(60), "h": Decimal(3600)}

_OTHER_TIMES = {
    "ns": ("nsec", "nanosecond", "nanoseconds"),
    "us": ("usec", "microsecond", "microseconds"),
    "ms": ("msec", "msecs", "millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "min": ("m", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
}
"""Spellings of the units of time, and of two units that only durations have."""

# ASCII digits only: \d would also match digits of other scripts.
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4})?)\s*([A-Za-z]*)", re.ASCII)


_PREFIXED = re.compile(r"[0-9.]\s*([kKMGTPE](?:iB?|B)?)\b", re.ASCII)
"""A size in a unit that is larger than a byte."""


@dataclass(frozen=True, slots=True)
class Units:
    """The units of bare numbers in an instance."""

    time: Literal["s", "ms", "us", "ns", "unit"] = "s"
    memory: Literal["B", "unit"] = "B"


def _split(text: str, what: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise QuantityError(f"{brief(text)} is not a {what}")
    return Decimal(match[1]), match[2]


def _meant_size(number: str, suffix: str) -> str:
    """Return which size a text with an unknown unit may mean."""
    letter, rest = suffix[:1].upper(), suffix[1:].lower()
    decimal, binary = (f"{letter}B".replace("KB", "kB"), f"{letter}iB")
    if letter == "B" and rest in ("", "yte", "ytes"):
        return f"; did you mean {number}B?"
    if letter not in ("K", "M", "G", "T", "P", "E"):
        return "; use B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
    if rest in ("i", "ib"):
        return f"; did you mean {number}{binary}?"
    if rest in ("", "b", "bytes", "byte"):
        return f"; did you mean {number}{decimal} or {number}{binary}?"
    return "; use B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"


def _meant_time(number: Decimal, text: str, suffix: str, known: Mapping[str, Decimal]) -> str:
    """Return which time a text with an unknown unit may mean."""
    for unit, others in _OTHER_TIMES.items():
        if suffix.lower() in (unit, *others):
            if unit in known:
                return f"; did you mean {text}{unit}?"
            return f"; did you mean {_plain(number * _DURATION_FACTORS[unit])}s?"
    return f"; use {', '.join(name for name in ('s', 'ms', 'us', 'ns', 'min', 'h') if name in known)}"


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}" if number < 10**18 else f"{number:.3g}"


def _as_size(number: Decimal, shown: str) -> int:
    # Compare before converting: int(Decimal('1e9999')) would build a number with ten thousand digits.
    if not number.is_finite():
        raise QuantityError(f"{shown} is not a finite size")
    if number < 0:
        raise QuantityError(f"{shown} is negative; a size is an integer >= 0")
    if number > LARGEST_SIZE:
        raise QuantityError(f"{shown} is larger than the largest size, 2^62")
    if number != number.to_integral_value():
        raise QuantityError(f"{shown} is not a whole number of bytes or units")
    return int(number)


def parse_size(value: object, units: Units | None = None) -> int:
    """Read a size.

    Parameters
    ----------
    value : int, float, Decimal or str
        ``8``, ``1e9`` (an integer), ``"8GB"`` = ``"8G"`` = 8*10^9, ``"8GiB"`` = ``"8Gi"`` = 2^33. A binary float
        that is whole except for rounding (`SIZE_ROUNDING`) is the whole number; decimals, as in files, are exact.
    units : Units, optional
        The instance's units; if memory is counted in ``unit``, byte suffixes are rejected.

    Returns
    -------
    int
        Bytes (or units), between 0 and 2^62.

    Raises
    ------
    QuantityError
        For anything else: booleans, fractions, negative, NaN or huge numbers, unknown suffixes.
    """
    if type(value) is int and 0 <= value <= LARGEST_SIZE:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise QuantityError(f"{brief(value)} is not a size (an integer, or a string such as '8GB' or '8GiB')")
    if isinstance(value, str):
        number, suffix = _split(value, "size; write an integer, or a string such as '8GB' or '8GiB'")
        factor = _SIZE_FACTORS.get(suffix)
        if factor is None:
            meant = _meant_size(value.strip().removesuffix(suffix).strip()[:30], suffix)
            raise QuantityError(f"{brief(value)} has an unknown unit {brief(suffix)}{meant}")
        if suffix and units is not None and units.memory == "unit":
            raise QuantityError(
                f"{brief(value)} is in bytes, but this instance counts memory in units; write a bare number"
            )
        return _as_size(number * factor, brief(value))
    if isinstance(value, int):
        return _as_size(Decimal(value) if abs(value) < 10**30 else Decimal("1e30").copy_sign(value), brief(value))
    return _as_size(_rounded(value) if isinstance(value, float) else Decimal(value), brief(value))


def parse_budget(value: object, units: Units | None = None) -> int:
    """Read a budget: a size, rounded down to whole bytes if it has a unit, so that ``"1.7GiB"`` is one.

    Raises
    ------
    QuantityError
        As `parse_size`.
    """
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    factor = _SIZE_FACTORS.get(match[2]) if match is not None and match[2] else None
    if match is None or factor is None or (units is not None and units.memory == "unit"):
        return parse_size(value, units)
    return _as_size((Decimal(match[1]) * factor).to_integral_value(ROUND_FLOOR), brief(value))


def _rounded(value: float) -> Decimal:
    """Return the whole number that a float represents up to rounding; negative and infinite floats unchanged."""
    number = Decimal(value)
    if not number.is_finite() or number < 0:
        return number
    whole = number.to_integral_value()
    if abs(value - float(whole)) <= SIZE_ROUNDING * value:
        return whole
    remedy = "round it, or an array with np.rint(x).astype(int)"
    raise QuantityError(f"{brief(value)} is not a whole number of bytes or units; {remedy}")


def parse_time(value: object, units: Units | None = None, *, largest: float = LARGEST_TIME) -> Number:
    """Read a time in the instance's unit.

    Parameters
    ----------
    value : int, float, Decimal or str
        A finite number >= 0, or a string with a unit: ``"3ms"``, ``"2us"``, ``"1.5s"``.
    units : Units, optional
        The unit of the result (default seconds).
    largest : float
        Maximum: `LARGEST_TIME` for times of an instance, `LARGEST_TOTAL` for their sums.

    Returns
    -------
    int or float
        An `int` if `value` is one, or if the string is an integer number of units.
    """
    if type(value) is float and 0 <= value <= largest:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise QuantityError(f"{brief(value)} is not a time (a number >= 0, or a string such as '3ms')")
    unit = units.time if units is not None else "s"
    if isinstance(value, str):
        number, suffix = _split(value, "time; write a number, or a string such as '3ms' or '1.5s'")
        if suffix:
            if unit == "unit":
                raise QuantityError(f"{brief(value)} has a unit, but this instance counts time in units")
            if suffix not in _TIME_FACTORS:
                meant = _meant_time(number, value.strip().removesuffix(suffix).strip()[:30], suffix, _TIME_FACTORS)
                raise QuantityError(f"{brief(value)} has an unknown unit {brief(suffix)}{meant}")
            number = number * _TIME_FACTORS[suffix] / _TIME_FACTORS[unit]
        return _as_time(number, brief(value), whole=True, largest=largest)
    if isinstance(value, int):
        if value < 0 or value > LARGEST_SIZE:
            raise QuantityError(f"{brief(value)} is out of range; a whole time lies between 0 and 2^62")
        return value
    return _as_time(Decimal(value), brief(value), whole=False, largest=largest)


def _as_time(number: Decimal, shown: str, *, whole: bool, largest: float = LARGEST_TIME) -> Number:
    if not number.is_finite():
        raise QuantityError(f"{shown} is not a finite time")
    if number < 0:
        raise QuantityError(f"{shown} is negative; a time is a number >= 0")
    if number > largest:
        raise QuantityError(f"{shown} is larger than the largest time, {largest:.0e}".replace("e+", "e"))
    if whole and number <= LARGEST_SIZE and number == number.to_integral_value():
        return int(number)
    return float(number)


def parse_number(value: object, *, largest: float = LARGEST_TIME) -> Number:
    """Read a finite number >= 0 that is not text: the only conversion of unitless numbers from documents.

    Returns
    -------
    int or float
        An `int`, up to 2^62, if `value` is one.

    Raises
    ------
    QuantityError
        For anything else: booleans, texts, negative numbers, NaN, numbers above `largest`.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise QuantityError(f"expected a number >= 0, not {brief(value)}")
    if isinstance(value, int):
        if not 0 <= value <= LARGEST_SIZE:
            raise QuantityError(f"{brief(value)} is out of range; a whole number lies between 0 and 2^62")
        return value
    number = Decimal(value)
    if not number.is_finite() or number < 0:
        raise QuantityError(f"expected a finite number >= 0, not {brief(value)}")
    if number > largest:
        raise QuantityError(f"{brief(value)} is larger than the largest number, {largest:.0e}".replace("e+", "e"))
    return float(number)


def parse_energy(value: object) -> Number:
    """Read an energy, a number from 0 to 2^62; it has no unit.

    Raises
    ------
    QuantityError
        For anything else: booleans, texts, negative numbers, NaN, larger numbers.
    """
    number = parse_number(value)
    if number > LARGEST_SIZE:
        raise QuantityError(f"{brief(value)} is out of range; an energy lies between 0 and 2^62")
    return number


def parse_bandwidth(value: object, units: Units | None = None) -> Number | None:
    """Read a bandwidth in memory units per time unit; ``None`` means infinite.

    In an instance that counts milliseconds, ``"12GB/s"`` is 12*10^6 bytes per millisecond.
    """
    if value is None:
        return None
    units = units or Units()
    if isinstance(value, str):
        size_text, slash, time_text = value.partition("/")
        if not slash or time_text.strip() not in _TIME_FACTORS:
            raise QuantityError(f"{brief(value)} is not a bandwidth; write a number, or a string such as '12GB/s'")
        if units.time == "unit":
            raise QuantityError(f"{brief(value)} is per second, but this instance counts time in units; write a number")
        size = Decimal(parse_size(size_text, units))
        rate = size * _TIME_FACTORS[units.time] / _TIME_FACTORS[time_text.strip()]
    elif isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        rate = Decimal(value)
    else:
        raise QuantityError(f"{brief(value)} is not a bandwidth; write a number, or a string such as '12GB/s'")
    if rate.is_finite() and rate == 0:
        raise QuantityError("a bandwidth of 0 would never transfer anything; leave the link out instead")
    if rate.is_finite() and 0 < rate < SMALLEST_BANDWIDTH:
        raise QuantityError(f"{brief(value)} is smaller than the smallest bandwidth, {SMALLEST_BANDWIDTH:.1e}")
    rounded = _as_time(rate, brief(value), whole=True)
    # A rate beside a whole number may round to it: then it is that number, as in the document that is written.
    return int(rounded) if rounded <= LARGEST_SIZE and rounded == int(rounded) else rounded


def parse_duration(text: str) -> float:
    """Read a wall-clock limit in seconds: ``30``, ``30s``, ``5min`` = ``5m``, ``500ms``."""
    try:
        number, suffix = _split(text, "duration; write 30, 30s, 5min or 1h")
        factor = _DURATION_FACTORS.get(suffix)
        if factor is None:
            plain = text.strip().removesuffix(suffix).strip()[:30]
            meant = _meant_time(number, plain, suffix, _DURATION_FACTORS)
            raise QuantityError(f"{brief(text)} is not a duration: unknown unit {brief(suffix)}{meant}")
        seconds = float(number * factor)
    except InvalidOperation:
        raise QuantityError(f"{brief(text)} is not a duration; write 30, 30s, 5min or 1h") from None
    if not 0 <= seconds < 1e9:
        raise QuantityError(f"{brief(text)} is out of range; a limit lies between 0 and 1e9 seconds")
    return seconds


_NAMES = {
    1000: ("B", "kB", "MB", "GB", "TB", "PB", "EB"),
    1024: ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"),
}
_SHOWN: ContextVar[Literal[1000, 1024] | None] = ContextVar("shown", default=None)


def shown_base() -> Literal[1000, 1024] | None:
    """Return the base of the units in which sizes are shown, if `sizes_shown_as` has chosen one."""
    return _SHOWN.get()


def size_scale(largest: int, units: Units | None = None) -> tuple[float, str]:
    """Return the divisor and the name of the unit that suits the largest of sizes that are read together."""
    if units is not None and units.memory == "unit":
        return 1.0, "units"
    base, power = _SHOWN.get() or 1024, 0
    while power < 6 and largest >= base ** (power + 1):
        power += 1
    return float(base**power), _NAMES[base][power]


@contextmanager
def sizes_shown_as(texts: Iterable[str]) -> Iterator[None]:
    """Show sizes in decimal units (GB) or in binary ones (GiB), as in the first of the texts that has such a unit."""
    bases: Iterator[Literal[1000, 1024]] = (
        1024 if "i" in match[1] else 1000 for match in map(_PREFIXED.search, texts) if match
    )
    token = _SHOWN.set(next(bases, None))
    try:
        yield
    finally:
        _SHOWN.reset(token)


def size_as_typed(size: int) -> str:
    """Return a size in the kind of unit in which it is round: ``24000MB`` or ``24MiB``; bare if in neither."""
    known = [(str(size // factor), name) for factor, name in ((2**20, "MiB"), (10**6, "MB")) if size % factor == 0]
    shortest = min(known, key=lambda each: len(each[0].rstrip("0")), default=(str(size), ""))
    return "".join(shortest)


def format_size(size: int, units: Units | None = None, *, both: bool = False) -> str:
    """Format a size: ``3.28 GiB``; with `both`, decimal and binary: ``3.52 GB (3.28 GiB)``."""
    if units is not None and units.memory == "unit":
        return f"{size:,}"
    if both and size >= 1000:
        return f"{_scaled(size, 1000)} ({_scaled(size, 1024)})"
    return _scaled(size, _SHOWN.get() or 1024)


def format_sizes(sizes: Sequence[int], units: Units | None = None) -> list[str]:
    """Format sizes that are read together: all in the unit of the largest, with no more decimals than that."""
    factor, name = size_scale(max(sizes, default=0), units)
    if factor == 1:
        return [format_size(size, units) for size in sizes]
    decimals = max(0, 4 - len(str(max(sizes) // int(factor))))
    texts = [f"{size / factor:.{decimals}f}" for size in sizes]
    if decimals:
        texts = [text.rstrip("0").rstrip(".") for text in texts]
    least = f"<{10.0**-decimals:.{decimals}f}"
    return [f"{least if size and text == '0' else text} {name}" for size, text in zip(sizes, texts, strict=True)]


def size_to_paste(size: int, units: Units | None = None, *, up: bool) -> str:
    """Format a size in decimal units, so that reading it back gives at least (`up`) or at most the size."""
    if (units is not None and units.memory == "unit") or size < 1000:
        return str(size)
    return _limited(size, 1000, up=up)


def budget_to_paste(size: int, units: Units | None = None, *, exact: bool = False) -> str:
    """Format a budget for a command line, without a space; reading it back gives the size, or unless `exact`, more.

    It has the kind of unit that `sizes_shown_as` has chosen. Without a choice, the kind in which it is exact, or the
    shorter one. Decimal figures have up to six digits; binary ones are whole, because fractions of a byte are refused.

    Examples
    --------
    >>> budget_to_paste(6_200_000_000), budget_to_paste(3 * 2**30)
    ('6.2GB', '3GiB')
    """
    if (units is not None and units.memory == "unit") or size < 1000:
        return str(size)
    texts = {1024: _binary_to_paste(size), 1000: _decimal_to_paste(size, digits=len(str(size)) if exact else 6)}
    chosen = _SHOWN.get()
    if chosen is not None and not (exact and parse_size(texts[chosen]) != size):
        return texts[chosen]
    return min(texts.values(), key=lambda text: (parse_size(text) != size, len(text)))


def _decimal_to_paste(size: int, digits: int) -> str:
    power = _power_of(size, 1000)
    return f"{_rounded_to(size, 1000**power, up=True, digits=digits)}{_NAMES[1000][power]}"


def _binary_to_paste(size: int) -> str:
    power = min((size.bit_length() - 1) // 10, 6)
    power -= power > 0 and size % 1024**power > 0
    return f"{-(-size // 1024**power)}{_NAMES[1024][power] if power else ''}"


def format_budget(size: int, units: Units | None = None, *, both: bool = False, enough: bool = True) -> str:
    """Format a size that a reader may copy into a budget: rounded to one side at the last printed digit.

    Parameters
    ----------
    size : int
        A budget, a capacity, a peak, or a lower bound on one of them.
    units : Units, optional
    both : bool
        Decimal and binary, as of `format_size`.
    enough : bool
        Whether the size suffices: then `parse_budget` reads at least the size back, otherwise at most the size.
    """
    if units is not None and units.memory == "unit":
        return format_size(size, units)
    if both and size >= 1000:
        return f"{_limited(size, 1000, up=enough)} ({_limited(size, 1024, up=enough)})"
    return _limited(size, _SHOWN.get() or 1024, up=enough)


def _limited(size: int, base: Literal[1000, 1024], *, up: bool) -> str:
    power = _power_of(size, base)
    number = _rounded_to(size, base**power, up=up)
    if power == 0 or Decimal(number) * base**power > LARGEST_SIZE:  # exact: a larger one could not be read back
        return f"{size} B"
    return f"{number} {_NAMES[base][power]}"


def _rounded_to(size: int, factor: int, *, up: bool, digits: int = 4) -> str:
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return f"{context.divide(Decimal(size), factor).normalize():f}"


def _scaled(size: int, base: Literal[1000, 1024]) -> str:
    power = _power_of(size, base)
    return f"{size} B" if power == 0 else f"{size / base**power:.4g} {_NAMES[base][power]}"


def _power_of(size: int, base: Literal[1000, 1024]) -> int:
    power = 0
    while power < 6 and abs(size) >= base ** (power + 1):
        power += 1
    return power


def format_percent(share: float, digits: int = 1) -> str:
    """Format a share: ``1,234.5 %``; a value that rounds to zero has no sign."""
    text = f"{100 * share:,.{digits}f}"
    return f"{text.removeprefix('-') if not text.strip('-0.') else text} %"


def format_time(time: Number, units: Units | None = None) -> str:
    """Format a time with a unit that suits its magnitude; without a unit if the instance counts in units."""
    unit = units.time if units is not None else "s"
    if unit == "unit":
        return f"{time:,}" if isinstance(time, int) else f"{time:.6g}"
    # The printed digits decide: 1000 us becomes 1 ms.
    seconds = float(f"{Decimal(time) * _TIME_FACTORS[unit]:.5g}")
    if seconds == 0:
        return "0 s"
    for name, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.5g} {name}"
    return f"{seconds / 1e-9:.5g} ns"
