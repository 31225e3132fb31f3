"""A budget that a heuristic names as sufficient is one at which the same heuristic finds a schedule."""

import pytest

import remat
from remat.plugin import Algorithm, LeastBudget, Proposal, registry, run_in_order

CHAIN = remat.chain(forward_time=[1, 1, 1], backward_time=1, output_size=4, input_size=4)
CALLS: list[int] = []


def _whole(problem):
    graph = problem.graph
    names = ["Fe1", "Fe2", "Fe3", "loss", "B3", "B2", "B1"]
    return Proposal(steps=run_in_order(graph, problem.machine, [graph.task(name) for name in names]))


def names_too_little(problem, options, context):
    """Name one byte more than the budget, up to 23; succeed from 25 on."""
    CALLS.append(problem.budget)
    if problem.budget >= 25:
        return _whole(problem)
    if problem.budget == 24:
        return Proposal()
    return Proposal(least=LeastBudget(problem.budget + 1, None, sufficient=True))


def names_in_two_steps(problem, options, context):
    """Name 22, where it then names 24."""
    CALLS.append(problem.budget)
    if problem.budget >= 24:
        return _whole(problem)
    return Proposal(least=LeastBudget(22 if problem.budget < 22 else 24, None, sufficient=True))


def fails_there(problem, options, context):
    """Name a budget at which it ends with an error."""
    CALLS.append(problem.budget)
    if problem.budget >= 24:
        raise IndexError("a bug")
    return Proposal(least=LeastBudget(24, None, sufficient=True))


def algorithm(function, name="named", **fields):
    given = {"guarantee": "heuristic", "complexity": "O(1)", "reference": "-"} | fields
    return Algorithm(name=name, solver=f"{__name__}:{function.__name__}", kinds=("chain",), summary="test", **given)


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


def test_a_budget_without_a_schedule_is_not_named():
    result = remat.solve(CHAIN, algorithm=algorithm(names_too_little), budget=22)
    assert CALLS == [22, 23, 24]
    assert not result.least_budget.sufficient
    assert result.least_budget.size == result.memory_bounds["memory"].size
    assert result.status == "unknown"


def test_the_trials_are_limited():
    result = remat.solve(CHAIN, algorithm=algorithm(names_too_little), budget=17)
    assert CALLS == [17, 18, 19, 20, 21]
    assert not result.least_budget.sufficient


def test_a_larger_budget_that_is_named_at_the_first_one_is_the_answer():
    result = remat.solve(CHAIN, algorithm=algorithm(names_in_two_steps), budget=10)
    assert CALLS == [10, 22, 24]
    assert (result.least_budget.size, result.least_budget.sufficient) == (24, True)
    prepared = remat.prepare(CHAIN, algorithm=algorithm(names_in_two_steps)).solve(10)
    assert prepared.least_budget == result.least_budget


def test_an_error_at_the_named_budget_is_logged_as_a_bug():
    result = remat.solve(CHAIN, algorithm=algorithm(fails_there), budget=10)
    assert not result.least_budget.sufficient
    assert [line.startswith("bug: named failed: IndexError") for line in result.log] == [True]


def test_an_algorithm_that_needs_slack_is_asked_again_too():
    """That its own peak may be too small a budget does not excuse a budget that it names."""
    result = remat.solve(CHAIN, algorithm=algorithm(names_too_little, needs_slack="it counts too much"), budget=22)
    assert CALLS == [22, 23, 24]
    assert not result.least_budget.sufficient


def names_for_nothing(problem, options, context):
    """Name a budget, and never find a schedule."""
    return Proposal(least=LeastBudget(24, None, sufficient=True))


def names_enough(problem, options, context):
    """Name the smallest budget for which it gives its schedule."""
    return _whole(problem) if problem.budget >= 30 else Proposal(least=LeastBudget(30, None, sufficient=True))


def test_the_portfolio_names_the_next_budget_if_the_smallest_has_no_schedule(monkeypatch):
    listed = algorithm(names_for_nothing, "wrong"), algorithm(names_enough, "right")
    monkeypatch.setattr(registry, "algorithms", lambda kind=None, **_: listed)
    result = remat.solve(CHAIN, budget=10)
    assert (result.least_budget.size, result.least_budget.sufficient) == (30, True)
