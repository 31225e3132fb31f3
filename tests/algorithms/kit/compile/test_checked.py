"""Run the zoo's kernels with index checks: no access out of bounds, and unchanged answers.

Tests in tests/algorithms/chain check the chain kernels together with their twins.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import remat
from remat.generate import generate
from remat.solving.problem_setup import make_problem
from remat.testing.cases import moderate
from remat_algorithms.dag.anytime.local_search.annealer import Annealer
from remat_algorithms.dag.plans.model import StageModel, stage_model
from remat_algorithms.dag.plans.search_state import Search
from remat_algorithms.kit.compile.lowering import VARIABLE, checked_indices


def model_of(kind: str) -> StageModel:
    document = dict(generate("dag", "layered", nodes=40, seed=1)) if kind == "layered" else moderate(kind)
    if kind == "layered":
        for task in document["tasks"][::2]:
            task["in_place"] = True
    return stage_model(make_problem(remat.load(document)))


def searched(model: StageModel, share: int) -> object:
    peak = Search(model, 0, 0).measure(model.tables.first, range(model.stages)).peak
    search = Search(model, peak * share // 100, 7, compiled=True)
    plan = search.construct(1.0) or search.repair(2)
    if plan is None:
        return search.room.item.tolist()
    search.start(plan)
    return plan, search.improve(3), search.construct(0.5, 0.8)


def walked(model: StageModel, share: int) -> object:
    peak = Search(model, 0, 0).measure(model.tables.first, range(model.stages)).peak
    annealer = Annealer(model, peak * share // 100, 7, compiled=True)
    annealer.round(2000, float("inf"), lambda: True)
    return annealer.present, annealer.best, annealer.time


@pytest.mark.parametrize("share", [90, 60])
@pytest.mark.parametrize("kind", ["layered", "chain", "adjoint"])
def test_searches_stay_within_their_arrays(kind: str, share: int) -> None:
    model = model_of(kind)
    with checked_indices():
        found = searched(model, share)
    assert found == searched(model, share)


@pytest.mark.parametrize("share", [90, 60])
def test_local_searches_stay_within_their_arrays(share: int) -> None:
    model = model_of("layered")
    with checked_indices():
        found = walked(model, share)
    assert found == walked(model, share)


@pytest.mark.parametrize("value", ["", "1"])
def test_the_variable_switches_the_check_on(value: str) -> None:
    program = (
        "from tests.algorithms.kit.compile.test_lowering import Kernel, box, writes\n"
        "try: Kernel(writes).bind(box())(0, 5)\n"
        "except IndexError: print('checked')\n"
    )
    environment = os.environ | {VARIABLE: value, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == (["checked"] if value else [])
