"""Budgets that an answer suggests: in the units of the answer, and sufficient when read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat.units import Units, budget_to_paste, parse_budget, sizes_shown_as


@given(st.integers(0, 10**18), st.sampled_from([(), ("8GB",), ("8GiB",)]))
def test_a_suggested_budget_reads_back_as_no_less_and_hardly_more(size: int, typed: tuple[str, ...]) -> None:
    with sizes_shown_as(typed):
        text, exact = budget_to_paste(size), budget_to_paste(size, exact=True)
    assert size <= parse_budget(text) <= size + size // 1000 + 1
    assert parse_budget(exact) == size


@pytest.mark.parametrize(
    ("typed", "size", "text"),
    [
        ("2GB", 3_720_000_000, "3.72GB"),
        ("2GB", 6_345_903_104, "6.34591GB"),
        ("2GiB", 6_345_903_104, "6052MiB"),
        ("2GiB", 3 * 2**30, "3GiB"),
        ("", 10**9, "1GB"),
        ("", 2**30, "1GiB"),
        ("", 999, "999"),
    ],
)
def test_a_suggested_budget_has_the_unit_that_was_typed(typed: str, size: int, text: str) -> None:
    with sizes_shown_as([typed]):
        assert budget_to_paste(size) == text


def test_a_budget_of_an_instance_without_units_is_a_number() -> None:
    assert budget_to_paste(12_345, Units(memory="unit")) == "12345"
