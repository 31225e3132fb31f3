"""The rules of eviction, on lists of values whose use decreases: S in the order of the paper."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat_algorithms.tree.out_of_core.eviction_rules import (
    BestCombination,
    BestFit,
    FirstFit,
    FurthestInFuture,
    LastScheduledFirst,
)


def filled(make, sizes, *more):
    """A policy with values 0, 1, ... of these sizes, 0 being used last."""
    policy = make(sizes, list(range(len(sizes), 0, -1)), *more)
    for value, size in enumerate(sizes):
        if size:
            policy.add(value)
    return policy


@pytest.mark.parametrize(
    ("make", "more", "need", "chosen"),
    [
        (FurthestInFuture, (), 5, [(0, 2), (1, 3)]),
        (LastScheduledFirst, (), 5, [(0, 2), (1, 4)]),
        (FirstFit, (), 5, [(3, 7)]),  # the first that is large enough by itself
        (FirstFit, (), 11, [(0, 2), (4, 9)]),  # none is: the first; then 9 are wanted
        (BestFit, (), 5, [(1, 4), (2, 1)]),  # 4 is closest to 5, then 1 to 1
        (BestFit, (), 8, [(4, 9)]),  # 7 and 9 are equally close: the larger one
        (BestCombination, (3,), 5, [(1, 4), (2, 1)]),
        (BestCombination, (3,), 6, [(0, 2), (1, 4)]),
        (BestCombination, (1,), 3, [(0, 2), (1, 4)]),  # K = 1 is LSNF
        (BestCombination, (5,), 14, [(1, 4), (2, 1), (4, 9)]),  # 2 + 4 + 1 + 7 are 14, too, but more values
        (BestCombination, (5,), 22, [(0, 2), (1, 4), (3, 7), (4, 9)]),
    ],
)
def test_rules_choose_the_expected_values(make, more, need, chosen):
    assert filled(make, [2, 4, 1, 7, 9], *more).choose(need) == chosen


POLICIES = [FurthestInFuture, LastScheduledFirst, FirstFit, BestFit, lambda size, use: BestCombination(size, use, 3)]


@pytest.mark.parametrize("make", POLICIES)
def test_rules_evict_all_values_or_none_when_asked(make):
    sizes = [2, 0, 4, 1]
    policy = filled(make, sizes)
    assert sorted(policy.choose(100)) == [(0, 2), (2, 4), (3, 1)]
    assert policy.choose(1) == []
    policy = filled(make, sizes)
    for value in (0, 2, 3):
        policy.remove(value)
    assert policy.choose(1) == []


def naive(rule, there, sizes, need):
    """The rules as they are stated; `there` lists S in order."""
    there, chosen = list(there), []
    while need > 0 and there:
        if rule is LastScheduledFirst:
            value = there[0]
        elif rule is FirstFit:
            value = next((v for v in there if sizes[v] >= need), there[0])
        else:
            value = min(there, key=lambda v: (abs(sizes[v] - need), sizes[v] < need, there.index(v)))
        there.remove(value)
        chosen.append((value, sizes[value]))
        need -= sizes[value]
    return chosen


@pytest.mark.parametrize("rule", [LastScheduledFirst, FirstFit, BestFit])
@settings(max_examples=80, derandomize=True, database=None, deadline=None)
@given(data=st.data())
def test_rules_against_their_statement(rule, data):
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=12))
    policy, there = filled(rule, sizes), list(range(len(sizes)))
    for _ in range(4):
        if there and data.draw(st.booleans()):
            value = data.draw(st.sampled_from(there))
            there.remove(value)
            policy.remove(value)
        need = data.draw(st.integers(1, 20))
        chosen = policy.choose(need)
        assert chosen == naive(rule, there, sizes, need)
        for value, _ in chosen:
            there.remove(value)
