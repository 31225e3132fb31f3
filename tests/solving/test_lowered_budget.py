"""The search for a smaller budget, with probes by hand."""

import time
from dataclasses import replace

import pytest

import remat
from remat.plugin import Context, LeastBudget
from remat.solving.lowered_budget import UNFINISHED, Refutation, _Lowering, lowered
from remat.solving.problem_setup import make_problem


def test_a_class_is_not_named_for_a_smaller_budget_than_the_one_it_was_refuted_for():
    chain = remat.chain(forward_time=[1] * 4, backward_time=[1] * 4, output_size=[1] * 4, saved_size=[3] * 4)
    found = remat.solve(chain)
    least = LeastBudget(found.peak_memory["memory"], 2, True, 0, "a class")
    for more, scope in ((0, "a class"), (80, None)):
        named = replace(least, size=least.size + more)
        lowering = _Lowering(make_problem(chain), lambda *_, **__: (found, []), named, named.size - 1)
        told = lowering.with_values(named, Context())
        assert (told.size, told.scope) == (least.size, scope)
        assert told.values


@pytest.mark.parametrize("late", [False, True])
def test_a_search_in_which_not_all_were_asked_is_unfinished(late):
    """The only one that was asked in time has one schedule; whoever needs less may be among the others."""
    chain = remat.chain(forward_time=[1] * 4, backward_time=[1] * 4, output_size=[1] * 4, saved_size=[3] * 4)
    context = Context(deadline=time.monotonic() + 1000)

    def probe(capacities, context, quick, only=None):
        if late and not quick:
            context.deadline = time.monotonic()
        return None, [Refutation("store-all", None, True, False)]

    problem = make_problem(chain, budget=6)
    _, notes = lowered(problem, context, LeastBudget(40, 2, True, 0), probe)
    assert notes == ((UNFINISHED,) if late else ())


def test_all_are_asked_at_the_peak_of_a_schedule_that_its_own_algorithm_does_not_find_there():
    chain = remat.chain(forward_time=[1] * 4, backward_time=[1] * 4, output_size=[1] * 4, saved_size=[3] * 4)
    wide, small = (remat.solve(chain, algorithm=name) for name in ("store-all", "recompute-all"))
    peak, least = (found.peak_memory["memory"] for found in (wide, small))
    assert least < peak

    def probe(capacities, context, quick, only=None):
        """The first algorithm needs one byte more than its schedule; the other one is asked after it."""
        if quick:
            return None, []
        if capacities["memory"] > peak and only != small.algorithm:
            return wide, []
        if capacities["memory"] >= least and only != wide.algorithm:
            return small, []
        return None, [Refutation(name, None, False, False) for name in (wide.algorithm, small.algorithm)]

    found, notes = lowered(make_problem(chain, budget=6), Context(), LeastBudget(peak + 20, 2, True, 0), probe)
    assert (found.size, notes) == (least, ())
