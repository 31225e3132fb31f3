"""The closed forms of binomial checkpointing against exhaustive search and reference values."""

from __future__ import annotations

import json

import pytest

from remat_algorithms.kit.binomial import advances, beta, first_split, repetition
from tests import places
from tests.oracles import search

REFERENCE = json.loads((places.REFERENCE / "adjoint.json").read_text())["points"]


@pytest.mark.parametrize("point", REFERENCE["beta"], ids=str)
def test_beta_equals_published_values(point: dict[str, int]) -> None:
    assert beta(point["s"], point["r"]) == point["beta"]


def test_closed_form_where_n_is_huge() -> None:
    assert advances(10**6, 30) == 5_623_008
    assert advances(10**5, 20) == 534_220
    assert repetition(10**6, 1) == 10**6 - 1


@pytest.mark.parametrize("n", range(1, 9))
def test_equals_exhaustive_search(n: int) -> None:
    for slots in range(1, 5):
        assert advances(n, slots) == search.adjoint_best_advances(n, slots)


def test_splits_are_optimal() -> None:
    for n in range(2, 120):
        for slots in range(2, 8):
            m = first_split(n, slots)
            assert m + advances(n - m, slots - 1) + advances(m, slots) == advances(n, slots)
