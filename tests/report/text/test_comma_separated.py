"""Records as CSV: nothing in them steers a terminal or a spreadsheet."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat.messages import printable
from remat.report.text.comma_separated import to_csv


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\x1b[31m", "\u202e=", "a,b", 'a"b', "a\nb", ""])
def test_texts_cannot_become_formulas(text: str) -> None:
    (row,) = csv.DictReader(io.StringIO(to_csv([{"name": text, "figure": -1.5}])))
    assert row["figure"] == "-1.5"
    assert row["name"].removeprefix("'") == printable(text)
    assert row["name"].isprintable()
    assert not row["name"].startswith(("=", "+", "-", "@"))


@given(st.text())
def test_what_is_shown_is_printable_and_the_same_json(text: str) -> None:
    assert printable(text).isprintable()
    document = json.dumps({text: [text]}, ensure_ascii=False, indent=1)
    shown = printable(document, lines=True)
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == {text: [text]}
