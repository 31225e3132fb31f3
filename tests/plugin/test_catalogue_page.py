"""The generated page of all algorithms: every algorithm, its guarantee and reference, and the algorithms that `auto`
runs."""

import re

from remat.plugin import registry, selection
from tests.plugin import catalogue_page


def rows(text):
    """Return the names in the first cell of each row, with the other cells."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "`" in line]
    return [(re.findall(r"`([^`]+)`", cells[0]), cells[1:]) for cells in found if len(cells) > 1]


def test_each_algorithm_has_one_row_with_its_guarantee_and_reference():
    listed = [(name, cells) for names, cells in rows(catalogue_page.zoo()) for name in names]
    assert sorted(name for name, _ in listed) == sorted(entry.name for entry in registry.algorithms())
    entries = {entry.name: entry for entry in registry.algorithms()}
    for name, (_, guarantee, reference, deviates) in listed:
        entry = entries[name]
        assert (guarantee, reference, deviates) == (entry.guarantee, entry.reference or "-", entry.deviates or "-")


def test_each_algorithm_has_one_row_with_its_class():
    listed = [(name, cells) for names, cells in rows(catalogue_page.guarantees()) for name in names]
    assert sorted(name for name, _ in listed) == sorted(entry.name for entry in registry.algorithms())
    entries = {entry.name: entry for entry in registry.algorithms()}
    for name, (guarantee, within, _) in listed:
        expected = catalogue_page.ONE_SCHEDULE if guarantee == "strategy" else entries[name].within or "-"
        assert within == expected


def test_each_algorithm_that_needs_slack_is_listed_with_its_reason():
    listed = {name: why for names, (why,) in rows(catalogue_page.slack()) for name in names}
    assert listed == {entry.name: entry.needs_slack for entry in registry.algorithms() if entry.needs_slack}


def test_trials_of_auto_are_listed_by_kind():
    sections = catalogue_page.trials().split("### `auto` for kind ")[1:]
    assert [section.split("\n", 1)[0] for section in sections] == list(registry.KINDS)
    for kind, section in zip(registry.KINDS, sections, strict=True):
        names = {candidate.algorithm.name for _, candidate in selection.declared(kind)}
        assert names <= set(re.findall(r"`([^`]+)`", section))
