"""On short chains no algorithm beats `remat-offload-best`, including constraint programs."""

import pytest

import remat
from benchmarks.chain_offload import drawn


@pytest.mark.parametrize(
    ("seed", "algorithm", "options"),
    [
        (174, "offload-exact", {"recompute": True, "work": 0.2}),
        pytest.param(41, "poet", {"work": 1.0}, marks=pytest.mark.slow),
        pytest.param(33, "poet", {"work": 1.0}, marks=pytest.mark.slow),
    ],
)
def test_no_program_is_quicker(seed, algorithm, options):
    document, machine, budget = drawn(seed, 6)
    given = {"machine": machine, "budget": budget}
    ours = remat.solve(document, algorithm="remat-offload-best", options={"iterations": 200}, **given)
    other = remat.solve(document, algorithm=algorithm, options=options, **given)
    assert ours.lower_bound <= ours.makespan <= other.makespan
