"""Algorithms that are given as objects, without an entry point."""

from dataclasses import replace

import pytest

import remat
from remat import OptionError
from remat.plugin import Algorithm, Context, Options, Problem, Proposal, reference_order, run_in_order


class ReferenceOptions(Options):
    """Options of the algorithm below."""

    rounds: int = 1


def solve(problem: Problem, options: ReferenceOptions, context: Context) -> Proposal:
    """Run the reference order (O(size of the graph))."""
    order = reference_order(problem.graph, problem.needed.once)
    return Proposal(steps=run_in_order(problem.graph, problem.machine, order), notes=(f"{options.rounds} rounds",))


OURS = Algorithm(
    name="reference-order",
    solver=f"{__name__}:solve",
    options=f"{__name__}:ReferenceOptions",
    kinds=("taskgraph",),
    summary="the reference order",
    guarantee="strategy",
    within="the reference order",
)
CHAIN = remat.example("lecture")


def test_an_object_is_solved_prepared_and_swept():
    result = remat.solve(CHAIN, algorithm=OURS, options={"rounds": 3})
    assert (result.algorithm, result.notes) == ("reference-order", ("3 rounds",))
    assert remat.verify(CHAIN, result).makespan == result.makespan
    prepared = remat.prepare(CHAIN, algorithm=OURS)
    assert prepared.algorithm == "reference-order"
    assert prepared.solve().makespan == result.makespan
    assert prepared.least_budget().algorithm == "reference-order"
    assert prepared.curve().algorithm == "reference-order"
    assert remat.least_budget(CHAIN, algorithm=OURS).makespan == result.makespan
    curves = remat.sweep(CHAIN, [OURS, "revolve"], options={"reference-order.rounds": 2}).curves
    assert [curve.algorithm for curve in curves] == ["reference-order", "revolve"]


def test_an_object_of_the_registry_is_the_algorithm_of_its_name():
    revolve = next(one for one in remat.algorithms("adjoint") if one.name == "revolve")
    assert remat.solve(CHAIN, algorithm=revolve).makespan == remat.solve(CHAIN, algorithm="revolve").makespan


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"kinds": ()}, "has kinds="),
        ({"kinds": ("tree",)}, "solves tree, not adjoint"),
        ({"name": "auto"}, "'auto' is not a name of an algorithm"),
        ({"name": ""}, "'' is not a name of an algorithm"),
        ({"guarantee": "best"}, "guarantee='best'"),
        ({"requires": ("no_package_of_this_name",)}, "needs no_package_of_this_name"),
    ],
)
def test_wrong_metadata_is_refused(changes, text):
    with pytest.raises(OptionError) as caught:
        remat.solve(CHAIN, algorithm=replace(OURS, **changes))
    assert caught.value.argument == "algorithm"
    assert text in str(caught.value)


def test_other_objects_are_refused_with_the_remedy():
    with pytest.raises(OptionError, match=r"expected a name, or a remat\.plugin\.Algorithm"):
        remat.solve(CHAIN, algorithm=solve)
