"""Fates of stages: of schedules that are known, and that no byte and no run is lost."""

from collections import Counter

import numpy as np
import pytest

import remat
from remat.report.views.stages import Fate, stages_of
from remat.report.views.task_index_ranges import ChainLayout
from remat.schedule.document import Run
from tests.report.results import CHAIN
from tests.report.views.by_hand import halves, offloaded

X, S = 2**20, 2**19


def stages(result, most=100):
    return stages_of(result, ChainLayout.of(result.graph), most)


def test_recomputed_from_the_input():
    found = stages(halves())
    assert found.first.tolist() == [0, 1, 2, 3, 4]
    assert found.runs.tolist() == [0, 2, 2, 1]
    assert found.recomputations == 2
    expected = np.zeros((4, 4), dtype=int)
    expected[0, Fate.CHECKPOINT] = X
    expected[1, Fate.RECOMPUTED] = expected[2, Fate.RECOMPUTED] = X + S
    expected[3, Fate.KEPT] = X + S
    assert (found.sizes == expected).all()


def test_offloaded_stages_count_their_bytes():
    found = stages(offloaded())
    assert found.sizes[:, Fate.OFFLOADED].tolist() == [0, X + S, 0, 0]
    assert found.sizes[:, Fate.KEPT].tolist() == [X, 0, X + S, X + S]
    assert found.totals.tolist() == [3 * X + 2 * S, 0, 0, X + S]
    assert found.recomputations == 0


def test_groups_add_up():
    single, grouped = stages(halves()), stages(halves(), most=2)
    assert grouped.first.tolist() == [0, 2, 4]
    assert grouped.sizes.tolist() == [(single.sizes[0] + single.sizes[1]).tolist(), single.sizes[2:].sum(0).tolist()]
    assert grouped.runs.tolist() == [2, 2]
    assert grouped.recomputations == single.recomputations
    assert stages(halves(), most=3).first.tolist() == [0, 2, 4]
    assert stages(halves(), most=1).sizes.shape == (1, 4)


@pytest.mark.parametrize("budget", ["6MiB", "8MiB", "20MiB"])
@pytest.mark.parametrize("algorithm", ["rotor", "store-all", "periodic", "chain-exact"])
def test_no_byte_and_no_run_is_lost(algorithm, budget):
    result = remat.solve(CHAIN, algorithm=algorithm, budget=budget)
    if result.report is None:
        return
    runs = Counter(step.task.lstrip("Fe") for step in result.steps if isinstance(step, Run) and step.task[0] == "F")
    saving = {step.task for step in result.steps if isinstance(step, Run) and step.task.startswith("Fe")}
    found = stages(result)
    assert found.runs.tolist() == [0, *(runs[str(k)] for k in (1, 2, 3))]
    assert found.sizes.sum() == 4 * X + len(saving) * S
    if result.recompute_time == 0:
        assert found.totals[Fate.RECOMPUTED] == found.totals[Fate.CHECKPOINT] == 0
    else:
        assert found.totals[Fate.RECOMPUTED] > 0


def test_variants_of_a_stage():
    ways = [{"saved_size": size, "saving_forward_time": 2, "backward_time": 9 - size} for size in (1, 6)]
    stage = {"forward_time": 2, "backward_time": 8, "output_size": 3, "variants": ways}
    document = CHAIN | {"units": {"time": "unit", "memory": "unit"}, "input_size": 3, "stages": [stage] * 3}
    result = remat.solve(document)
    saved = {step.task for step in result.steps if isinstance(step, Run) and step.task.startswith("Fe")}
    assert len(saved) == 3
    assert stages(result).sizes.sum() == 4 * 3 + sum(1 if task.endswith(".1") else 6 for task in saved)
