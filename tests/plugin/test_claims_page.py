"""Test that the tables of docs/reference/algorithms.md match the metadata."""

from tests.plugin import claims_page


def test_the_tables_are_those_of_the_metadata():
    text = claims_page.PAGE.read_text(encoding="utf-8")
    assert claims_page.generated() in text, "run python -m tests.plugin.claims_page"
    assert claims_page.zoo() in text, "run python -m tests.plugin.claims_page"
