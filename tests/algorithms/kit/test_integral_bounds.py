"""Bounds on whole makespans are whole, and compared as integers."""

from fractions import Fraction

import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain.rotor.rotor import nearly
from remat_algorithms.kit.integral_bounds import is_whole, raised

TREE = {"schema": "remat.instance/1", "kind": "tree", "parent": [-1, 0], "output_size": [1, 1], "time": [1, 2**53 + 1]}


def problem(document):
    return make_problem(remat.load(document))


def machine(**link):
    ways = [{"source": "a", "target": "b"} | link, {"source": "b", "target": "a"}]
    memories = [{"name": "a"}, {"name": "b"}]
    return {"machine": {"memories": memories, "processors": [{"name": "p", "memory": "a"}], "links": ways}}


def test_a_bound_is_the_next_integer():
    whole = problem(TREE)
    assert is_whole(whole)
    assert raised(whole, Fraction(2 * (2**53 + 1) + 1, 2)) == 2**53 + 2
    assert raised(whole, 6.25) == 7
    assert type(raised(whole, 6.0)) is int


@pytest.mark.parametrize(
    "more", [{"time": [0.5, 1]}, {"parallel": {"max": 2, "alpha": 0.5}}, machine(bandwidth=2), machine(latency=0.5)]
)
def test_where_times_are_not_whole_a_bound_is_what_it_is(more):
    assert raised(problem(TREE | more), 6.25) == 6.25
    assert raised(problem(TREE | more), Fraction(25, 4)) == 6.25


def test_whole_times_are_equal_or_not():
    assert not nearly(10**15, 10**15 + 1)
    assert nearly(10.0**15, 10.0**15 + 0.125)
