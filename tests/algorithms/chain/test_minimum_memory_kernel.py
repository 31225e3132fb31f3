"""Test the minimum-memory kernel: compiled with index checks, it fills the same table as interpreted."""

from __future__ import annotations

import numpy as np
import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain.minimum_memory import LeastMemory
from remat_algorithms.chain.minimum_memory_kernel import FILL_COLUMN, Columns
from remat_algorithms.chain.segments import Segments
from remat_algorithms.kit.compile.lowering import checked_indices
from tests.algorithms.chain.test_phase_matrix import draw_any


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_compiled_equals_interpreted(seed: int, splits: bool, real: bool) -> None:
    instance = draw_any(seed, 5 + seed)
    for stage in instance["stages"] if real else ():
        stage["forward_time"] += 0.25
    segments = Segments.of(make_problem(remat.load(instance)).chain)
    table = LeastMemory.of(segments)
    assert (table.time.dtype == np.float64) == real
    found = []
    for compiled in (False, True):
        columns = Columns.of(segments, np.zeros_like(table.need), np.zeros_like(table.time))
        with checked_indices():
            bound = FILL_COLUMN.bind(columns)
        for last in range(segments.length + 1):
            if compiled:
                bound(last, splits)
            else:
                FILL_COLUMN.plain(columns, last, splits)
        found.append(columns)
    assert np.array_equal(found[0].need, found[1].need)
    assert np.array_equal(found[0].time, found[1].time)
    if splits:
        assert np.array_equal(found[0].need, table.need)
        assert np.array_equal(found[0].time, table.time)
