"""Test that counts agree with their nouns: 1 curve, 2 curves."""

import ast
import re
from itertools import pairwise

import pytest

import remat
from remat.messages import counted
from tests import places

PRINTED = ("report", "comparing", "cli/compare.py", "cli/sweep.py")
"""Where texts for readers are written, in the source of `remat`."""

PLURAL = re.compile(r" (?:[a-z]+-[a-z]+ )?[a-z-]*[a-z]{2}s\b")


def fixed_plurals(source):
    """Yield the line and the text of each length that a fixed plural follows: with a length of 1, it is wrong."""
    for text in ast.walk(ast.parse(source)):
        parts = text.values if isinstance(text, ast.JoinedStr) else []
        for count, noun in pairwise(parts):
            if isinstance(count, ast.FormattedValue) and isinstance(noun, ast.Constant):
                shown, following = ast.unparse(count.value), str(noun.value)
                if "len(" in shown and "counted(" not in shown and PLURAL.match(following):
                    yield count.lineno, f"{{{shown}}}{following[:30]}"


def test_no_length_has_a_fixed_plural():
    root = places.ROOT / "solver" / "remat"
    files = [
        file for name in PRINTED for file in ([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))
    ]
    found = [
        f"{file.relative_to(root)}:{line}: {text}"
        for file in files
        for line, text in fixed_plurals(file.read_text("utf-8"))
    ]
    assert not found, "use remat.messages.counted:\n" + "\n".join(found)


def test_fixed_plurals_are_noticed():
    assert [*fixed_plurals("f'{len(what.curves):,} time-memory curves'")]
    assert [*fixed_plurals("f'{len(all) - 3} rows more'")]
    assert not [*fixed_plurals("f'{counted(len(rows), \"row\")} more'; f'{len(row)} with copies'")]


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "step", "1 step"),
        (0, "step", "0 steps"),
        (1234, "memory", "1,234 memories"),
        (2, "day", "2 days"),
        (8, "micro-batch", "8 micro-batches"),
    ],
)
def test_nouns_are_counted(count, noun, text):
    assert counted(count, noun) == text


def test_texts_of_objects_count_one():
    chain = remat.chain(forward_time=[1], backward_time=[2], output_size=[3])
    swept = repr(remat.sweep(chain, "keep-all", budgets=[100]))
    assert "1 time-memory curve " in swept
    assert swept.endswith("; 1 point")
