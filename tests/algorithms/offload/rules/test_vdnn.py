"""Test `vdnn-all`, `vdnn-conv`, `vdnn-pp`: hand-computed timelines, the published formula, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import remat
from remat.instance import digest
from remat.testing.strategies import chains
from tests.algorithms.offload.machines import assert_ways_are_needed, two_memories
from tests.algorithms.offload.timelines import FIVE, starts, timeline

# FIVE on 2 bytes a unit of time out, 1 back. Stage: conv1 relu1 conv2 pool conv3; forwards take 2 1 3 1 2, backwards
# 4 2 6 1 5, inputs x0..x4 of 4 6 6 2 3 leave in 2 3 3 1 1.5 and come back in 4 6 6 2 3.
#
# vdnn-all    Fe1    Fe2    Fe3    Fe4    Fe5      loss   B5     B4     B3     B2     B1
# run         2      1      3      1      2        0      5      1      6      2      4
# transfer    x0 2   x1 3   x2 3   x3 1   x4 1.5   x4 3   x3 2   x2 6   x1 6   x0 4   -
# lasts       2      3      3      1      2        3      5      6      6      4      4      = 39
ALL = """
    0   Fe1, x0 out
    2   Fe2, x1 out
    5   Fe3, x2 out
    8   Fe4, x3 out
    9   Fe5, x4 out
    11  drop x4, loss, x4 back
    14  B5, x3 back
    19  B4, x2 back
    25  B3, x1 back
    31  B2, x0 back
    35  B1
"""

# vdnn-conv: only x0, x2 and x4 leave. With B4, x2 is back but not used yet, so x0 waits for B3.
#
#             Fe1    Fe2    Fe3    Fe4    Fe5      loss   B5     B4     B3     B2     B1
# run         2      1      3      1      2        0      5      1      6      2      4
# transfer    x0 2   -      x2 3   -      x4 1.5   x4 3   x2 6   -      x0 4   -      -
# lasts       2      1      3      1      2        3      6      1      6      2      4      = 31
CONV = """
    0   Fe1, x0 out
    2   Fe2
    3   Fe3, x2 out
    6   Fe4
    7   Fe5, x4 out
    9   drop x4, loss, x4 back
    12  B5, x2 back
    18  B4
    19  B3, x0 back
    25  B2
    27  B1
"""

# vdnn-pp: forwards do not wait; the channel out is busy 0-2, 2-5, 5-8, 8-9, 9-10.5. x4 cannot come back before it has
# left, 10.5; then each backward needs the value prefetched during the previous run: B5 at 13.5, x3 at 15.5 (B4 at
# 18.5), x2 from 18.5 to 24.5, and the rest as above.
PP = """
    0    Fe1, x0 out
    2    Fe2, x1 out
    3    Fe3
    5    x2 out
    6    Fe4
    7    Fe5
    8    x3 out
    9    loss, x4 out
    10.5 x4 back
    13.5 B5, x3 back
    18.5 B4, x2 back
    24.5 B3, x1 back
    30.5 B2, x0 back
    34.5 B1
"""

NAMES = ("vdnn-all", "vdnn-conv", "vdnn-pp")


@pytest.mark.parametrize(
    ("algorithm", "expected", "end"), [("vdnn-all", ALL, 39), ("vdnn-conv", CONV, 31), ("vdnn-pp", PP, 38.5)]
)
def test_schedules_equal_the_timelines_by_hand(algorithm: str, expected: str, end: float) -> None:
    result = remat.solve(FIVE, algorithm=algorithm, machine=two_memories(2, 1))
    assert starts(result) == timeline(expected)
    assert result.makespan == end


def test_saved_values_leave_a_stage_later() -> None:
    """Saved sizes 2 0 0 0 4: s1 leaves after x1, during Fe2 (3 + 1), and comes back with x0 (4 + 2)."""
    saved = [2, 0, 0, 0, 4]
    stages = [stage | {"saved_size": size} for stage, size in zip(FIVE["stages"], saved, strict=True)]
    document = FIVE | {"stages": stages}
    plain = remat.solve(document, algorithm="vdnn-all", machine=two_memories(2, 1))
    result = remat.solve(document, algorithm="vdnn-all", machine=two_memories(2, 1), options={"saved": True})
    found = starts(result)
    assert (2, "x1 out") in found
    assert (5, "s1 out") in found
    assert plain.makespan == 39
    assert result.makespan == 39 + 1 + 2
    assert not any(what.startswith("s5") for _, what in found)


@settings(max_examples=60, deadline=None)
@given(chains(plain=True), st.integers(1, 8), st.integers(1, 8), st.data())
def test_makespan_equals_the_closed_formula(document: dict[str, Any], out: int, back: int, data: st.DataObject) -> None:
    """T = sum max(uF, s/bwD) + sum max(uB, s/bwH) for any set of stages, where every backward reads its input."""
    assume("variants" not in str(document))
    document.pop("machine", None)
    names = []
    for stage in document["stages"]:
        stage["name"] = data.draw(st.sampled_from(["conv", "pool"]))
        stage.pop("backward_reads", None)
        names += [stage["name"]] * stage.get("repeat", 1)
    document["backward_reads"] = ["input", "output", "saved"]
    assume("conv" in names)
    algorithm = data.draw(st.sampled_from(["vdnn-all", "vdnn-conv"]))
    chosen = [stage for stage, name in enumerate(names) if algorithm == "vdnn-all" or name == "conv"]
    result = remat.solve(document, algorithm=algorithm, machine=two_memories(out, back))
    chain = remat.solving.problem_setup.make_problem(remat.load(document)).chain
    inputs, times = chain.activation_size.tolist(), chain.saving_forward_time.tolist()
    expected = 0.0
    for stage, time in enumerate(times):
        expected += max(time, inputs[stage] / out if stage in chosen else 0)
    # The loss (stage L) and the backwards: the next offloaded stage below comes back once the last one has been used.
    waiting, back_already = [stage for stage in chosen if inputs[stage]], chain.length
    for stage in range(chain.length, -1, -1):
        moved = 0
        if waiting and back_already >= stage:
            back_already = waiting.pop()
            moved = inputs[back_already]
        run = chain.loss_time if stage == chain.length else chain.backward_time[stage]
        expected += max(run, moved / back)
    assert result.makespan == pytest.approx(expected)


@pytest.mark.parametrize("algorithm", NAMES)
def test_other_machines_only_take_longer(algorithm: str) -> None:
    """Half duplex, a synchronous channel and a latency only take longer; the schedules stay valid."""
    free = remat.solve(FIVE, algorithm=algorithm, machine=two_memories(2, 1)).makespan
    assert free is not None
    for machine in (
        two_memories(2, 1, channels=("bus", "bus")),
        two_memories(2, 1, channels=("gpu", "gpu")),
        two_memories(2, 1, latency=1),
    ):
        result = remat.solve(FIVE, algorithm=algorithm, machine=machine)
        assert result.makespan is not None
        assert result.makespan >= free


@pytest.mark.parametrize("algorithm", NAMES)
def test_budget_and_host(algorithm: str) -> None:
    """Below the need of the rule's schedule, the result reports that need, and the schedule fits in it."""
    tight = remat.solve(FIVE, algorithm=algorithm, machine=two_memories(2, 1), budget={"device": 25})
    assert tight.scope is not None
    assert tight.least_budget is not None
    # B2 holds x0 (back one stage ahead), x1, x2, y2 and y1, of 4 6 6 6 6.
    assert tight.least_budget.size == 28
    enough = remat.solve(FIVE, algorithm=algorithm, machine=two_memories(2, 1), budget={"device": 28})
    assert enough.peak_memory["device"] == 28
    small = two_memories(2, 1)
    small["memories"][1]["capacity"] = 5
    result = remat.solve(FIVE, algorithm=algorithm, machine=small)
    assert str(result.status) == "unknown"
    assert "other memories" in " ".join(result.notes)


def test_a_stage_counts_if_any_of_its_operators_is_a_convolution() -> None:
    """FIVE with neutral names and lists of operators has the timeline of the descriptive names."""
    operators = [["aten.convolution", "aten.relu"], ["aten.relu"], ["conv2d"], ["aten.max_pool2d"], ["Convolution"]]
    stages = [
        stage | {"name": "block", "origin": [{"op": op} for op in ops]}
        for stage, ops in zip(FIVE["stages"], operators, strict=True)
    ]
    document = FIVE | {"schema": "remat.instance/3", "stages": stages}
    result = remat.solve(document, algorithm="vdnn-conv", machine=two_memories(2, 1))
    assert starts(result) == timeline(CONV)
    plain = FIVE | {"stages": [stage | {"name": "block"} for stage in FIVE["stages"]]}
    assert digest(remat.load(document)) == digest(remat.load(plain))


def test_the_shipped_resnet_has_convolutions() -> None:
    """Its stages are blocks: all but the classifier are sent."""
    result = remat.solve(
        remat.example("chains/resnet50_b32_224"), algorithm="vdnn-conv", machine=two_memories("12GB/s"), budget=0.8
    )
    sent = {what for _, what in starts(result) if what.endswith("out")}
    assert sent == {f"x{k} out" for k in range(17)}


def test_names_that_match_nothing() -> None:
    document = FIVE | {"stages": [stage | {"name": "block"} for stage in FIVE["stages"]]}
    with pytest.raises(remat.OptionError, match="contain 'conv'; its stages are 'block'"):
        remat.solve(document, algorithm="vdnn-conv", machine=two_memories(2, 1))
    chosen = remat.solve(document, algorithm="vdnn-conv", machine=two_memories(2, 1), options={"stages": "pool, BLOCK"})
    assert chosen.makespan == 39


@pytest.mark.parametrize("algorithm", NAMES)
def test_no_way_out_or_back(algorithm: str) -> None:
    assert_ways_are_needed(FIVE, algorithm)


def test_a_third_memory_behind_a_small_host() -> None:
    """x0, x2, x4 are 13 bytes in all; a host of 9 holds x2 and x4, and x0, which stays longest, goes on."""
    machine = two_memories(2, 1)
    machine["memories"][1]["capacity"] = 9
    machine["memories"].append({"name": "nvme"})
    for source, target in (("host", "nvme"), ("nvme", "host")):
        machine["links"].append({"source": source, "target": target, "bandwidth": 1, "channel": "disk"})
    result = remat.solve(FIVE, algorithm="vdnn-conv", machine=machine)
    assert result.makespan is not None
    assert result.makespan >= 31  # as with an unbounded host
    assert result.peak_memory["host"] == 9
    assert result.peak_memory["nvme"] == 4
