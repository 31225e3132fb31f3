"""`offload-exact` is never slower than the quick heuristics whose schedules are of its class."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.testing import strategies
from tests.algorithms.offload import trained

HEURISTICS = ("offload-greedy", "tflms", "vdnn-pp", "superneurons", "capuchin")


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_next_to_no_work_is_enough_to_be_as_quick(count):
    @settings(max_examples=count, derandomize=True, database=None, deadline=None)
    @given(strategies.chains(largest=5, plain=True, exact=True), st.integers(0, 99))
    def run(document, share):
        document |= {"machine": trained.machine(down=1, up=1, host_processor=False)}
        for stage in document["stages"]:
            stage.pop("variants", None)
        keep = remat.solve(document, algorithm="keep-all")
        low, high = keep.memory_bounds["device"].size, keep.peak_memory["device"]
        budget = low + (high - low) * share // 100
        # Less work than the program needs to find anything.
        options = {"recompute": True, "work": 1e-9}
        best = remat.solve(document, algorithm="offload-exact", budget=budget, options=options)
        for name in HEURISTICS:
            other = remat.solve(document, algorithm=name, budget=budget)
            if other.makespan is not None:
                assert best.makespan is not None, name
                assert best.makespan <= other.makespan, name

    run()
