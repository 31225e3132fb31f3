"""Ends of placed schedules: they equal the verifier's, also with processors of different speeds."""

import pytest

import remat
from remat.placement import Placement, place
from remat.solving.problem_setup import make_problem
from remat.verifier import check
from remat_algorithms.kit.makespan import makespan_of
from tests.algorithms.offload.trained import drawn


@pytest.mark.parametrize("seed", range(4))
def test_processors_of_different_speed(seed: int) -> None:
    document = drawn(seed, longest=3, parameters="host")
    for processor in document["machine"]["processors"][1:]:
        processor["speed"] = 0.25
    problem = make_problem(remat.load(document))
    steps = remat.solve(document, algorithm="l2l").columns
    assert steps is not None
    placed = place(problem.graph, problem.machine, steps)
    assert isinstance(placed, Placement)
    report = check(problem.graph, problem.machine, steps.placed(placed.start))
    assert makespan_of(problem, steps, placed) == report.makespan
