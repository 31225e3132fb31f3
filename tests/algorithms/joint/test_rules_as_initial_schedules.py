"""`remat-offload-best` is never slower than the rules that it asks for starts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.testing import strategies
from remat_algorithms.joint.remat_offload_best import SEARCHING
from remat_algorithms.offload.rules.catalogue import ALGORITHMS as RULES
from tests.algorithms.offload import trained


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_no_rule_is_quicker(count):
    @settings(max_examples=count, derandomize=True, database=None, deadline=None)
    @given(strategies.chains(plain=True, exact=True), st.integers(0, 99))
    def run(document, share):
        document |= {"machine": trained.machine(down=1, up=2, host_processor=False)}
        for stage in document["stages"]:
            stage.pop("variants", None)
        keep = remat.solve(document, algorithm="keep-all")
        low, high = keep.memory_bounds["device"].size, keep.peak_memory["device"]
        budget = low + (high - low) * share // 100
        best = remat.solve(document, algorithm="remat-offload-best", budget=budget, options={"iterations": 5})
        for rule in RULES:
            if rule.name in SEARCHING:
                continue
            try:
                other = remat.solve(document, algorithm=rule.name, budget=budget)
            except remat.OptionError:
                continue
            if other.makespan is not None:
                assert best.makespan is not None, rule.name
                assert best.makespan <= other.makespan * (1 + 1e-12), rule.name

    run()
