"""Test a strategy's reported minimum budget: its schedule fits, and one byte less does not."""

from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.testing import strategies

LOOP = {"kind": "adjoint", "schema": "remat.instance/1", "steps": 3}
BESIDE = {
    "memories": [{"name": "device"}, {"name": "host"}],
    "processors": [{"name": "gpu", "memory": "device"}],
    "links": [{"source": "device", "target": "host"}, {"source": "host", "target": "device"}],
}


def test_a_run_may_wait_for_room_that_a_transfer_leaves():
    document = LOOP | {"machine": BESIDE}
    assert remat.solve(document, algorithm="fixed").peak_memory["device"] == 3
    for budget in (0, 1):
        assert remat.solve(document, algorithm="fixed", budget=budget).least_budget.size == 2
    assert remat.solve(document, algorithm="fixed", budget=2).peak_memory["device"] == 2


@settings(max_examples=25, derandomize=True, database=None, deadline=None)
@given(strategies.adjoints(largest=5, machine=True), st.integers(0, 6))
def test_the_least_is_enough_and_a_byte_less_is_not(document, budget):
    for name in ("fixed", "store-all"):
        try:
            refused = remat.solve(document, algorithm=name, budget=budget)
        except remat.OptionError:
            return
        least = refused.least_budget
        if refused.columns is None and least is not None and least.sufficient:
            memory = refused.machine.memories[least.memory].name
            given = {refused.machine.memories[1 if document.get("storage") else 0].name: budget}
            enough = remat.solve(document, algorithm=name, budget=given | {memory: least.size})
            assert enough.columns is not None
            if least.size:
                less = remat.solve(document, algorithm=name, budget=given | {memory: least.size - 1})
                assert less.columns is None
