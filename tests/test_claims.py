"""The page of the papers' claims: its tables are what the benchmark returns, and have the claimed directions."""

import pytest

from benchmarks.claims import CLAIMS, PAGE, section

QUICK = ("trees", "h-revolve", "through-time", "zero-bubble")
SLOW = sorted(CLAIMS.keys() - {*QUICK, "checkmate"})
"""Checkmate's solver stops at a limit of time, so its figures depend on the machine."""


def printed(name):
    """Return the table of a claim as the page prints it."""
    found = section(name).search(PAGE.read_text())
    assert found is not None
    return found[2]


def rows(name):
    """Return the rows of a table, without its header."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in printed(name).splitlines()[2:]]


def number(cell):
    """Return the first number of a cell; infinite where there is no schedule."""
    return float("inf") if cell == "none" else float(cell.split()[0].replace(",", ""))


def test_every_claim_has_its_table():
    assert PAGE.read_text().count("<!-- table of claim ") == len(CLAIMS)
    assert all(rows(name) for name in CLAIMS)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_the_page_prints_what_the_benchmark_measures(name):
    assert printed(name) == CLAIMS[name]().markdown()


def test_better_figures_are_on_the_claimed_side():
    for *_, alone, together, _ in rows("pofo"):
        better = number(together) >= number(alone) if alone.endswith("x") else number(together) <= number(alone)
        assert better
    for _, _, *rules, dtr, best in rows("checkmate"):
        assert all(number(best) <= number(rule) for rule in rules if rule != "-")
        assert number(best) <= number(dtr) + 0.1
    for *_, saved in rows("h-revolve"):
        assert number(saved) > 0
    bubbles = {(size, name): (number(bubble), number(memory)) for size, name, bubble, _, memory in rows("zero-bubble")}
    for size in {size for size, _ in bubbles}:
        first, least = bubbles[size, "1f1b"], bubbles[size, "v-min"]
        assert bubbles[size, "zb-v"] == (0, 1)
        assert all(bubble <= first[0] for (other, _), (bubble, _) in bubbles.items() if other == size)
        assert least[1] <= 0.5
    for _, *speed_ups in rows("planners"):
        assert max(map(number, speed_ups)) > 1
    peaks = [number(peak) for _, peak, *_ in rows("zero")]
    assert peaks == sorted(peaks, reverse=True)
