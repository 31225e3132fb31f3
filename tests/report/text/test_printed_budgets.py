"""Test that every budget, capacity and peak that `remat` prints suffices when a reader copies it."""

import ast
import re

from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.report.text.curve_tables import rows_of
from tests import places

NEAREST = {"format_size", "format_sizes"}
"""Functions that round to the nearest: not for figures that a reader may copy into a budget."""

BUDGETS = re.compile(r"\b(?:peaks?|capacity|budget|arena|least)\b")
"""Names of figures that a reader may copy into a budget."""


def rounded_to_nearest(source):
    """Yield the line and the text of each budget that is formatted as any other size."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in NEAREST:
            text = ast.unparse(call)
            if BUDGETS.search(text) and not any(isinstance(part, ast.Sub) for part in ast.walk(call)):
                yield call.lineno, text


def test_one_function_formats_budgets():
    found = [
        f"{path.relative_to(places.ROOT)}:{line}: {text}"
        for path in sorted((places.ROOT / "solver" / "remat").rglob("*.py"))
        if "format_size" in (source := path.read_text("utf-8"))
        for line, text in rounded_to_nearest(source)
    ]
    assert not found, "format_budget, not format_size:\n" + "\n".join(found)


def test_rounding_to_the_nearest_is_noticed():
    assert [*rounded_to_nearest("x = 1\nformat_size(point.budget, units)")] == [(2, "format_size(point.budget, units)")]
    assert not [*rounded_to_nearest("format_size(value.size)\nformat_budget(peak)\nformat_size(capacity - peak)")]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(10**6, 10**9), min_size=4, max_size=4))
def test_copied_rows_of_a_curve_are_no_slower(sizes):
    chain = remat.chain(forward_time=[3] * 4, backward_time=[5] * 4, output_size=sizes, saved_size=sizes[::-1])
    found = remat.sweep(chain, "rotor", points=5)
    (curve,) = found.curves
    for point, row in zip(curve.answers, rows_of(curve, found.units), strict=True):
        if point.solved:
            for copied in row[:2]:
                again = remat.solve(chain, budget=copied, algorithm="rotor")
                assert again.makespan is not None
                assert point.makespan is not None
                assert again.makespan <= point.makespan
        else:
            assert remat.solve(chain, budget=row[0], algorithm="rotor").makespan is None


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(10**6, 10**9), min_size=3, max_size=3))
def test_copied_minimum_budgets_and_peaks_have_a_schedule(sizes):
    chain = remat.chain(forward_time=[3] * 3, backward_time=[5] * 3, output_size=sizes, saved_size=sizes)
    refused = remat.solve(chain, budget=1000, algorithm="rotor")
    for copied in printed("minimum budget", refused):
        found = remat.solve(chain, budget=copied, algorithm="rotor")
        for again in printed("peak memory", found):
            same = remat.solve(chain, budget=again, algorithm="rotor")
            assert same.makespan is not None
            assert found.makespan is not None
            assert same.makespan <= found.makespan


def printed(label, result):
    """Return the decimal and the binary figure after a label of an answer."""
    told = re.search(rf"{label} +\S+: (\S+ \S+) \((\S+ \S+)\)", result.summary())
    assert told is not None
    return told.groups()
