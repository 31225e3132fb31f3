"""The table of claims in docs/algorithms.md says what the metadata says."""

from tests.plugin import claims_page


def test_the_table_is_that_of_the_metadata():
    text = claims_page.PAGE.read_text(encoding="utf-8")
    assert claims_page.generated() in text, "run python -m tests.plugin.claims_page"
