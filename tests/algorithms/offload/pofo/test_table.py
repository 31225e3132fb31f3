"""POFO's table against itself: of few bytes, more slots than bytes say nothing more."""

import random

import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.offload.pofo.table import PofoTable, Rates, remade_segments


@pytest.mark.parametrize("remake", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_slot_has_at_least_a_byte(seed, remake):
    draw = random.Random(seed)
    keys = ("forward_time", "backward_time", "output_size", "saved_size")
    stages = [{key: draw.randint(1, 4) for key in keys} for _ in range(3)]
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "stages": stages}
    problem = make_problem(remat.load(document))
    most = 0
    for memory in range(1, 20):
        remade = remade_segments(problem.chain, memory, lambda: False) if remake else None
        tables = [PofoTable(problem.chain, memory, Rates(1.0, 1.0), slots, remade=remade) for slots in (memory, 20)]
        assert all(table.fill(lambda: False) for table in tables)
        assert tables[0].estimate == tables[1].estimate
        most += tables[0].estimate == float("inf")
    assert most > 0, "little memory must be too little"
