"""Ancestors, descendants and levels against their definitions; chains of moments."""

import itertools
import random

import pytest

import remat
from remat.generate import generate
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.moments.before_first_run import Free, Listed
from remat_algorithms.dag.moments.integer_facts import Facts
from remat_algorithms.dag.moments.precedence import Lineage, listed_levels
from tests.algorithms.dag.moments.drawn import chain, graph


def facts_of(document):
    return Facts.of(make_problem(remat.load(document)))


@pytest.mark.parametrize("seed", range(3))
def test_ways_and_levels_are_those_of_the_definition(seed):
    document = dict(generate("dag", "layered", nodes=30, seed=seed))
    facts = facts_of(document)
    lineage, order, tasks = Lineage.of(facts), Free(facts), facts.tasks
    assert facts.order == list(tasks)
    maker = [makers[0] for makers in facts.makers]
    before = [set() for _ in tasks]
    for task in tasks:
        for value in facts.reads[task]:
            before[task] |= before[maker[value]] | {maker[value]}
    for task in tasks:
        known = [
            True if other in before[task] else False if other == task or task in before[other] else None
            for other in tasks
        ]
        assert order.before(task) == known
        assert [bool(lineage.before[task] >> other & 1) for other in tasks] == [k is True for k in known]
        there = [
            value
            for value in facts.values
            if maker[value] in before[task]
            and (facts.stays[value] or any(user == task or task in before[user] for user in facts.users[value]))
        ]
        assert lineage.level[task] == facts.static + facts.needs(task) + sum(facts.size[value] for value in there)
    moments = lineage.chain()
    assert all(one in before[other] for one, other in itertools.pairwise(moments))
    parts = [set(lineage.choose(moments, count)) for count in range(1, len(moments) + 1)]
    assert all(less <= more for less, more in itertools.pairwise(parts))
    assert parts[-1] == set(moments)
    peak = next(iter(remat.solve(document, algorithm="keep-all").peak_memory.values()))
    assert max(lineage.level) <= peak == max(listed_levels(facts))


def possible_before(facts, task, *, listed):
    """Return by exhaustive trial which tasks can run before `task`, and which must."""
    others = [k for k in facts.tasks if k != task]
    if listed:
        others = [k for k in others if not 0 <= facts.place[task] <= facts.place[k]]
    can = reach(facts, others)
    must = set()
    for other in can:
        there = set(reach(facts, [k for k in others if k != other]))
        values = {v for v in facts.values if facts.here[v] or v in facts.begins}
        values |= {v for k in there for v in facts.writes[k]}
        if not set(facts.reads[task]) <= values:
            must.add(other)
    return set(can), must


def reach(facts, tasks):
    there = {value for value in facts.values if facts.here[value] or value in facts.begins}
    ran = []
    while ready := [k for k in tasks if k not in ran and set(facts.reads[k]) <= there]:
        ran += ready
        there |= {value for k in ready for value in facts.writes[k]}
    return ran


@pytest.mark.parametrize("seed", range(40))
def test_what_has_run_is_true_of_every_order(seed):
    draw = random.Random(seed)
    document = chain(draw, 3) if seed % 4 == 0 else graph(draw, 7, alternatives=True, host=seed % 3 == 0)
    facts = facts_of(document)
    for task in facts.order:
        can, must = possible_before(facts, task, listed=False)
        for other, known in enumerate(Free(facts).before(task)):
            assert known is not True or other in must
            assert (known is False) == (other not in can)
        can, _ = possible_before(facts, task, listed=True)
        for other, known in enumerate(Listed(facts).before(task)):
            if facts.place[other] >= 0:
                assert known == (facts.place[other] < facts.place[task])
            else:
                assert known is (None if other in can else False)
