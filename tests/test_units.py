"""Test the reading of sizes, times, bandwidths and durations: exact values and refusals."""

import re
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat.errors import QuantityError
from remat.units import (
    LARGEST_SIZE,
    LARGEST_TOTAL,
    Units,
    format_budget,
    format_percent,
    format_size,
    format_sizes,
    format_time,
    parse_bandwidth,
    parse_budget,
    parse_duration,
    parse_size,
    parse_time,
    size_as_typed,
    size_scale,
    size_to_paste,
    sizes_shown_as,
)

UNIT = Units("unit", "unit")


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 0),
        (8, 8),
        (1e9, 10**9),
        (Decimal("1e9"), 10**9),
        ("17", 17),
        ("1e3", 1000),
        ("8B", 8),
        ("8kB", 8000),
        ("8KB", 8000),
        ("8GB", 8 * 10**9),
        ("8 GB", 8 * 10**9),
        (" 8GB ", 8 * 10**9),
        ("8GiB", 2**33),
        ("8Gi", 2**33),
        ("16G", 16 * 10**9),
        ("16k", 16_000),
        ("16K", 16_000),
        ("8KiB", 8192),
        ("1.5GiB", 3 * 2**29),
        ("0.1MB", 100_000),
        ("1.7GB", 1_700_000_000),  # 1.7 * 10**9 in floats is another number
        ("4EiB", LARGEST_SIZE),
        (LARGEST_SIZE, LARGEST_SIZE),
        (33.2 * 1e6, 33_200_000),  # 33200000.000000004
        (0.57 * 100, 57),  # 56.99999999999999
    ],
)
def test_sizes_are_parsed_exactly(value, size):
    parsed = parse_size(value)
    assert parsed == size
    assert type(parsed) is int


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("8,5GB", "is not a size"),
        ("8GBit", "unknown unit 'GBit'"),
        ("8gb", "unknown unit"),
        ("8kiB", "unknown unit"),
        ("1.5", "not a whole number"),
        (1.5, r"not a whole number of bytes or units; round it, or an array with np\.rint\(x\)\.astype\(int\)"),
        (33.2e6 + 0.1, "not a whole number"),
        (1e-12, "not a whole number"),
        ("33200000.000000004", "not a whole number"),
        (Decimal("33200000.000000004"), "not a whole number"),  # as numbers of files are read
        ("1.0001kB", "not a whole number"),
        ("-1", "is not a size"),
        (-1, "negative"),
        (-1.0, "negative"),
        ("nan", "is not a size"),
        (float("nan"), "not a finite size"),
        (float("inf"), "not a finite size"),
        (Decimal("Infinity"), "not a finite size"),
        (True, "true is not a size"),
        (False, "false is not a size"),
        (None, "null is not a size"),
        ([8], "is not a size"),
        ("", "is not a size"),
        ("GB", "is not a size"),
        ("8 8GB", "is not a size"),
        ("+8", "is not a size"),
        ("0x10", "is not a size"),
        ("1_000", "is not a size"),
        ("٣GB", "is not a size"),  # other scripts' digits
        (LARGEST_SIZE + 1, "larger than the largest size"),
        (10**400, "more than 30 digits"),
        (-(10**400), "more than 30 digits"),
        ("1e9999", "larger than the largest size"),
        ("5EiB", "larger than the largest size"),
        ("1e-1", "not a whole number"),
        ("9" * 5000, "larger than the largest size"),
    ],
)
def test_what_is_no_size(value, why):
    with pytest.raises(ValueError, match=why) as caught:
        parse_size(value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("read", "text", "meant"),
    [
        (parse_size, "16gib", "did you mean 16GiB?"),
        (parse_size, "1.5 GIB", "did you mean 1.5GiB?"),
        (parse_size, "16g", "did you mean 16GB or 16GiB?"),
        (parse_size, "16gb", "did you mean 16GB or 16GiB?"),
        (parse_size, "16 kb", "did you mean 16kB or 16KiB?"),
        (parse_size, "16 bytes", "did you mean 16B?"),
        (parse_size, "16furlongs", "use B, kB, MB"),
        (parse_time, "5m", "did you mean 300s?"),
        (parse_time, "5min", "did you mean 300s?"),
        (parse_time, "5 sec", "did you mean 5s?"),
        (parse_time, "3MS", "did you mean 3ms?"),
        (parse_time, "5x", "use s, ms, us, ns"),
        (parse_duration, "5 minutes", "did you mean 5min?"),
        (parse_duration, "2hours", "did you mean 2h?"),
        (parse_duration, "5x", "use s, ms, us, ns, min, h"),
    ],
)
def test_units_that_are_nearly_right(read, text, meant):
    with pytest.raises(ValueError, match=re.escape(meant)) as caught:
        read(text)
    offered = re.findall(r"[\d.]+[a-zA-Z]+(?=\?| or )", str(caught.value).partition("did you mean")[2])
    assert all(read(size) > 0 for size in offered)


@pytest.mark.parametrize(
    ("budget", "size"),
    [("1.7GiB", 1825361100), ("0.9B", 0), ("2.5kB", 2500), ("12GB", 12 * 10**9), (7, 7), ("7", 7)],
)
def test_budgets_are_rounded_down_to_whole_bytes(budget, size):
    assert parse_budget(budget) == size


@pytest.mark.parametrize("budget", ["1.5", 1.5, "-1GB", "1.7XB", "1e40GB", True, "nanGB"])
def test_what_is_no_size_is_no_budget(budget):
    with pytest.raises(QuantityError):
        parse_budget(budget)


def test_sizes_of_instances_stay_exact():
    with pytest.raises(QuantityError, match=r"'1.7GiB' is not a whole number"):
        parse_size("1.7GiB")
    with pytest.raises(QuantityError, match="counts memory in units"):
        parse_budget("1.7GiB", Units(memory="unit"))


def test_units_have_no_bytes():
    assert parse_size("17", UNIT) == 17
    for text in ("8GB", "8B"):
        with pytest.raises(ValueError, match="counts memory in units"):
            parse_size(text, UNIT)


@settings(deadline=None)
@given(st.integers(0, LARGEST_SIZE))
def test_sizes_are_exact(size):
    assert parse_size(str(size)) == parse_size(Decimal(size)) == parse_size(f"{size}B") == size


@pytest.mark.parametrize(
    ("value", "unit", "time"),
    [
        (3, "s", 3),
        (0.25, "s", 0.25),
        (2.0, "s", 2.0),
        (Decimal("0.1"), "s", 0.1),
        ("3ms", "s", 0.003),
        ("3ms", "ms", 3),
        ("3ms", "us", 3000),
        ("2us", "ns", 2000),
        ("1.5s", "ms", 1500),
        ("1.5s", "s", 1.5),
        ("0.1ms", "us", 100),
        ("7", "s", 7),
        ("7", "unit", 7),
        ("1e3 ns", "us", 1),
    ],
)
def test_times_are_parsed_exactly(value, unit, time):
    parsed = parse_time(value, Units(unit))
    assert parsed == time
    assert type(parsed) is type(time)


@pytest.mark.parametrize(
    ("value", "unit", "why"),
    [
        (-1, "s", "out of range"),
        (-0.5, "s", "negative"),
        (float("nan"), "s", "not a finite time"),
        (float("inf"), "s", "not a finite time"),
        (True, "s", "true is not a time"),
        (None, "s", "null is not a time"),
        ("-3ms", "s", "is not a time"),
        ("3 minutes", "s", "unknown unit 'minutes'"),
        ("3ms", "unit", "counts time in units"),
        (2**62 + 1, "s", "out of range"),
        (1e301, "s", "larger than the largest time"),
        (Decimal("1e400"), "s", "larger than the largest time"),
        ("1e9999", "s", "larger than the largest time"),
    ],
)
def test_what_is_no_time(value, unit, why):
    with pytest.raises(ValueError, match=why):
        parse_time(value, Units(unit))


def test_totals_may_be_larger():
    assert parse_time(1.01e300, largest=LARGEST_TOTAL) == 1.01e300
    assert parse_time("1e301s", largest=LARGEST_TOTAL) == 1e301
    for value in (1.1e308, float("inf"), float("nan"), Decimal("1e400"), 2**62 + 1):
        with pytest.raises(ValueError, match=r"largest time, 1e308|finite|out of range"):
            parse_time(value, largest=LARGEST_TOTAL)


@settings(deadline=None)
@given(st.floats(0, 1e300))
def test_float_times_come_back_as_they_are(time):
    assert parse_time(time) == time
    assert parse_time(Decimal(time)) == time


def test_whole_numbers_of_other_types_stay_floats():
    assert repr(parse_time(Decimal(2))) == "2.0"
    assert repr(parse_time(2)) == "2"


@pytest.mark.parametrize(
    ("value", "units", "rate"),
    [
        (None, Units(), None),
        (5, Units(), 5),
        (2.5, Units(), 2.5),
        ("12GB/s", Units(), 12 * 10**9),
        ("12GB/s", Units("ms"), 12 * 10**6),
        ("12GB/s", Units("ns"), 12),
        ("1GiB/ms", Units("s"), 1000 * 2**30),
        ("1B/us", Units("ns"), 0.001),
        (4, UNIT, 4),
    ],
)
def test_bandwidths_are_parsed_exactly(value, units, rate):
    parsed = parse_bandwidth(value, units)
    assert parsed == rate
    assert type(parsed) is type(rate)


@pytest.mark.parametrize("value", [2**62 + 1, Decimal("9007199254740993.5"), 2**62 - 1, 0.1, 1e300, 2.0**62])
def test_a_bandwidth_is_read_back_as_it_is(value):
    parsed = parse_bandwidth(value)
    again = parse_bandwidth(parsed)
    assert (again, type(again)) == (parsed, type(parsed))


@pytest.mark.parametrize(
    ("value", "units", "why"),
    [
        (0, Units(), "would never transfer anything"),
        ("0B/s", Units(), "would never transfer anything"),
        (0.0, Units(), "would never transfer anything"),
        (-1, Units(), "negative"),
        ("12GB", Units(), "is not a bandwidth"),
        ("12GB/h", Units(), "is not a bandwidth"),
        ("fast/s", Units(), "is not a size"),
        (True, Units(), "is not a bandwidth"),
        ([], Units(), "is not a bandwidth"),
        (float("nan"), Units(), "not a finite"),
        ("12GB/s", UNIT, "in units"),
        ("12/s", Units("unit", "B"), "counts time in units"),
    ],
)
def test_what_is_no_bandwidth(value, units, why):
    with pytest.raises(ValueError, match=why):
        parse_bandwidth(value, units)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("0.5", 0.5), ("500ms", 0.5), ("5min", 300), ("1h", 3600), ("0", 0)]
)
def test_durations_are_parsed(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "30 days", "-1", "nan", "1e10", "1e9999h"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match=r"not a duration|out of range"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (3_520_000_000, "3.278 GiB"),
        (2**62, "4 EiB"),
    ],
)
def test_sizes_are_shown(size, shown):
    assert format_size(size) == shown


def test_sizes_are_shown_both_ways():
    assert format_size(3_520_000_000, both=True) == "3.52 GB (3.278 GiB)"
    assert format_size(999, both=True) == "999 B"
    assert format_size(1_234_567, UNIT, both=True) == "1,234,567"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["8GB"], "3.52 GB"),
        (["host=8 G"], "3.52 GB"),
        (["80%", "device=8GiB", "host=64GB"], "3.278 GiB"),
        (["8Gi"], "3.278 GiB"),
        (["80%"], "3.278 GiB"),
        (["8000000000"], "3.278 GiB"),
        ([], "3.278 GiB"),
    ],
)
def test_sizes_are_shown_in_the_kind_of_unit_that_was_typed(typed, shown):
    with sizes_shown_as(typed):
        assert format_size(3_520_000_000) == shown
        assert format_sizes([3_520_000_000, 1]) == [shown, f"<0.001 {shown[-3:].strip()}"]
        number, unit = format_budget(3_520_000_001).split()
        assert (unit, float(number) >= float(shown.split()[0])) == (shown.split()[1], True)
        assert size_scale(3_520_000_000)[1] == unit
        assert format_size(3_520_000_000, both=True) == "3.52 GB (3.278 GiB)"
        assert format_size(3_520_000_000, UNIT) == "3,520,000,000"
    assert format_size(3_520_000_000) == "3.278 GiB"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (24 * 10**9, "24000MB"),
        (24 * 2**30, "24576MiB"),
        (2048 * 10**9, "2048000MB"),  # a multiple of 2^20, too
        (2**20 * 15625, "15625MiB"),
        (123_456_789, "123456789"),
        (0, "0MiB"),
    ],
)
def test_a_size_that_is_round_in_one_kind_of_unit_was_typed_in_it(size, text):
    assert size_as_typed(size) == text
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("time", "unit", "shown"),
    [
        (0, "s", "0 s"),
        (1.5, "s", "1.5 s"),
        (0.0125, "s", "12.5 ms"),
        (3, "us", "3 us"),
        (2500, "ns", "2.5 us"),
        (0.25, "ns", "0.25 ns"),
        (0.0009999999, "s", "1 ms"),
        (0.00099999, "s", "999.99 us"),
        (999_999_999, "ns", "1 s"),
        (1e307, "s", "1e+307 s"),
        (1234567, "unit", "1,234,567"),
        (0.123456789, "unit", "0.123457"),
    ],
)
def test_times_are_shown(time, unit, shown):
    assert format_time(time, Units(unit)) == shown


def test_the_default_unit_is_the_second():
    assert format_time(2) == "2 s"
    assert parse_time("2ms") == 0.002


@given(st.integers(0, LARGEST_SIZE), st.booleans(), st.sampled_from(((), ("8GB",), ("8GiB",))))
def test_printed_budgets_are_enough_or_too_little_when_pasted(size, enough, typed):
    with sizes_shown_as(typed):
        alone, both = format_budget(size, enough=enough), format_budget(size, both=True, enough=enough)
    for text in (alone, *both.removesuffix(")").split(" (")):
        read = parse_budget(text)
        assert size <= read <= size * 1.0011 if enough else size >= read >= size * 0.9989 - 1
        assert len(re.sub("[^0-9]", "", text)) <= 4 or text == f"{size} B"
    assert parse_budget(format_budget(size, UNIT, enough=enough).replace(",", ""), UNIT) == size


@given(st.integers(0, 2**61), st.booleans())
def test_sizes_to_paste_are_on_their_side(size, up):
    read = parse_size(size_to_paste(size, up=up))
    assert size <= read <= size * 1.0011 if up else size >= read >= size * 0.9989
    assert size_to_paste(size, UNIT, up=up) == str(size)


def test_sizes_that_are_read_together_have_one_unit():
    assert format_sizes([3 * 2**30 + 2**28, 15 * 2**20, 2**30, 0, 4]) == [
        *("3.25 GiB", "0.015 GiB", "1 GiB", "0 GiB", "<0.001 GiB")
    ]
    assert format_sizes([1023 * 2**20, 2**17]) == ["1023 MiB", "<1 MiB"]
    assert format_sizes([]) == []
    assert format_sizes([5, 1000]) == ["5 B", "1000 B"]
    assert format_sizes([5_000_000, 7], UNIT) == ["5,000,000", "7"]


@given(st.lists(st.integers(0, 2**61), min_size=1, max_size=6))
def test_sizes_that_are_read_together_are_near_their_values(sizes):
    shown = [text.split() for text in format_sizes(sizes)]
    (unit,) = {name for _, name in shown}
    factor = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)
    for size, (text, _) in zip(sizes, shown, strict=True):
        assert (text == "0") == (size == 0)
        if not text.startswith("<"):
            assert float(text) * factor == pytest.approx(size, abs=1e-3 * max(sizes))


def test_shares_have_no_sign_at_zero():
    shown = [format_percent(share) for share in (0.0, -1e-12, -0.0, 0.0004, -0.02, 25.319)]
    assert shown == [*["0.0 %"] * 4, "-2.0 %", "2,531.9 %"]
