"""`vdnn-dyn`: its passes on five stages, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

import remat
from tests.algorithms.offload.machines import assert_ways_are_needed, two_memories
from tests.algorithms.offload.timelines import FIVE, starts, timeline

KERNELS = [
    {"name": "quick", "saving_workspace": 8, "backward_workspace": 8},
    {"name": "small", "saving_forward_time": 5, "backward_time": 9},
]
"""Of conv2, whose forward takes 3 and whose backward takes 6 with the quick one."""


def five(kernels: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """FIVE with kernels of conv2, and an output of 4 bytes: with everything kept, B5 holds 32."""
    stages = [dict(stage) for stage in FIVE["stages"]]
    stages[2]["variants"] = kernels
    stages[4]["output_size"] = 4
    return FIVE | {"stages": stages} | more


# In 28, B3 does not fit with the quick kernel: nothing leaves 26 + 8, convolutions 26 + 8, all 22 + 8. With the small
# one it does, but where nothing leaves B5 does not. `vdnn-conv` then takes 5 for Fe3, and 9 for B3: 31 + 2 + 3; all
# inputs would take 39 + 5. x2 has gone before Fe3 ends, and is dropped then.
SMALL = """
    0   Fe1, x0 out
    2   Fe2
    3   Fe3.2, x2 out
    8   drop x2, Fe4
    9   Fe5, x4 out
    11  drop x4, loss, x4 back
    14  B5, x2 back
    20  B4
    21  B3.2, x0 back
    30  B2
    32  B1
"""


def test_a_small_kernel_where_the_quick_one_does_not_fit() -> None:
    result = remat.solve(five(KERNELS), algorithm="vdnn-dyn", machine=two_memories(2, 1), budget={"device": 28})
    assert starts(result) == timeline(SMALL)
    assert result.makespan == 36


@pytest.mark.parametrize(
    ("budget", "makespan"),
    [
        (34, 27),  # nothing leaves, the quick kernel: 26 + 8 for B3
        (33, 32),  # nothing leaves, the small kernel: 27 + 2 + 3, with 32 for B5; vdnn-all would take 39
        (32, 32),
        (31, 36),  # vdnn-conv with the small kernel
        (28, 36),
    ],
)
def test_each_budget_takes_its_pass(budget: int, makespan: int) -> None:
    result = remat.solve(five(KERNELS), algorithm="vdnn-dyn", machine=two_memories(2, 1), budget={"device": budget})
    assert result.makespan == makespan
    assert result.peak_memory["device"] <= budget


def test_a_budget_below_all_passes_has_no_schedule() -> None:
    result = remat.solve(five(KERNELS), algorithm="vdnn-dyn", machine=two_memories(2, 1), budget={"device": 27})
    assert str(result.status) == "unknown"
    assert "the pass with the smallest memory needs 28" in " ".join(result.notes)


def test_saved_bytes_of_other_stages_shrink() -> None:
    """A kernel of conv1 that saves nothing frees 6 bytes under B5, which has no other kernel itself."""
    stages = five([])["stages"]
    stages[0] |= {"saved_size": 6, "variants": [{}, {"saved_size": 0, "backward_time": 7}]}
    document = FIVE | {"stages": stages}
    result = remat.solve(document, algorithm="vdnn-dyn", machine=two_memories(2, 1), budget={"device": 32})
    assert result.makespan == 27 + 3
    assert {"Fe1.2", "B1.2"} <= {what for _, what in starts(result)}


def test_never_slower_than_the_rules_it_chooses_from() -> None:
    for budget in (28, 30, 32, 34, 40):
        found = [
            remat.solve(five([]), algorithm=name, machine=two_memories(2, 1), budget={"device": budget}).makespan
            for name in ("vdnn-dyn", "vdnn-conv", "vdnn-all")
        ]
        assert found[0] is not None
        assert all(found[0] <= other for other in found[1:] if other is not None)


def test_no_way_out_or_back() -> None:
    assert_ways_are_needed(FIVE, "vdnn-dyn")
