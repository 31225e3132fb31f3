"""Test programs for CP-SAT and its integer answers."""

import random

from remat_algorithms.kit.programs.cp_sat import solve
from remat_algorithms.kit.programs.program import ProgramBuilder


def test_bounds_of_whole_costs_are_whole():
    """CP-SAT scales its proved bound, so the last bits are not part of the bound."""
    draw = random.Random(0)
    for _ in range(40):
        program = ProgramBuilder()
        costs = [draw.randint(2, 6) * 10**7 + draw.randint(0, 20) for _ in range(2)]
        for cost in (0, 0, *costs):
            program.add_column(cost=cost, integer=True)
        program.add_row([(0, -5), (1, -2)], lower=-5)
        program.add_row([(0, 1), (2, 1), (3, -1)], lower=0)
        program.add_row([(1, 1), (2, 1)], lower=1)
        program.add_row([(0, 1), (2, 1)], lower=1)
        answer = solve(program, seconds=None, stopped=lambda: False, step=1, known=17377234)
        assert answer.bound == costs[0]
