"""Compare the pigeonhole bound on indivisible items with all assignments to bins."""

import itertools
import random

import pytest

from remat_algorithms.kit.pigeonhole_bound import Bins, fullest
from tests.seeds import seeds


def best(kinds):
    """Return the least filling of the fullest bin, by trying everything."""
    bins = [(start, kind.items) for kind in kinds for start in kind.starts]
    found = float("inf")
    for chosen in itertools.product(range(len(bins)), repeat=len(kinds[0].items)):
        fill = [start for start, _ in bins]
        for item, own in enumerate(chosen):
            fill[own] += bins[own][1][item]
        found = min(found, max(fill[own] for own in chosen))
    return found


@pytest.mark.parametrize("seed", seeds(40, 2000))
def test_never_above_the_best(seed):
    rng = random.Random(seed)
    count, kinds = rng.randint(1, 6), rng.randint(1, 2)
    items = [rng.choice([rng.randint(1, 3), rng.randint(1, 9)]) for _ in range(count)]
    given = [
        Bins(
            [rng.choice([0, rng.randint(0, 5)]) for _ in range(rng.randint(1, 2))],
            [item * rng.choice([1, 1, 2]) if kind == 0 or rng.random() < 0.9 else float("inf") for item in items],
        )
        for kind in range(kinds)
    ]
    assert fullest(given) <= best(given)


def test_exact_where_items_are_equal():
    for count, bins in itertools.product(range(1, 12), range(1, 5)):
        assert fullest([Bins([0] * bins, [3] * count)]) == 3 * -(-count // bins)
    # The third bin begins so late that one item more goes into the first two.
    assert fullest([Bins([0, 0, 7], [3] * 4)]) == 6
    assert fullest([Bins([0, 1], [4, 4, 4])]) == 8


def test_nothing_and_what_fits_nowhere():
    assert fullest([Bins([0], [])]) == 0
    assert fullest([Bins([0], [float("inf")])]) == 0
    assert fullest([Bins([0, 0], [1] * 100_000)]) <= 50_000
