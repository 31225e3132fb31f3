"""Test `superneurons`: cost classes, recomputation modes, hand-computed timelines, and machines without offload."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import remat
from remat.solving.problem_setup import make_problem
from remat.testing.strategies import chains
from remat_algorithms.dag.literature.retention_phases import training_of
from remat_algorithms.offload.rules.superneurons import (
    cheap_components,
    cheap_segments,
    dear_stages,
    dear_tasks,
    remade_in_graph,
)
from tests.algorithms.offload.machines import two_memories
from tests.algorithms.offload.timelines import EQUAL, chain_of, starts, timeline

NAMED = chain_of(
    [(name, 1, 2, 4) for name in ("conv_a", "pool", "relu", "Conv_b", "pool")],
    input_size=4,
)
"""As EQUAL, with two convolutions. With everything kept, runs hold 8 12 16 20 24 | 28 | 32 28 24 20 16."""

# In 24, at 1 a unit of time. Dear: stages 1 and 4; the one segment is stages 2 and 3, 8 bytes, less than the 16 of a
# backward: recomputed together before B4. x2 and x3 go after F3 and Fe4; B5 holds x0 x1 x4 x5 y5 y4 = 24, only B4 with
# x0 x1 x2 x3 x4 y4 y3 = 28 exceeds it. The least recently used is x0: it leaves at once, 0-4, and may come back when
# B4 has ended, during B3: 11-15. Without recomputation, x0 and x1 leave before B5, which starts after 8; the step
# ends after 20 (see `capuchin`); memory-centric takes 18, as below.
BY_SEGMENT = """
    0   Fe1, x0 out
    1   F2
    2   F3
    3   Fe4
    4   Fe5
    5   loss, B5
    7   Fe2
    8   Fe3
    9   B4
    11  B3, x0 back
    13  B2
    15  B1
"""

# Without a second memory: to fit B4, x3 alone is recomputed, through x2; B3 recomputes x2 once more.
MEMORY_CENTRIC = """
    0   Fe1
    1   F2
    2   F3
    3   Fe4
    4   Fe5
    5   loss, B5
    7   F2
    8   Fe3
    9   B4
    11  Fe2
    12  B3
    14  B2
    16  B1
"""


def test_segments_are_recomputed_as_by_hand() -> None:
    result = remat.solve(NAMED, algorithm="superneurons", machine=two_memories(1), budget={"device": 24})
    assert starts(result) == timeline(BY_SEGMENT)
    assert result.makespan == 17
    assert result.recompute_time == 2


@pytest.mark.parametrize(
    "machine",
    [
        None,
        two_memories(1) | {"links": two_memories(1)["links"][:1]},
        two_memories(1) | {"memories": [{"name": "device"}, {"name": "host", "capacity": 3}]},
    ],
)
def test_where_nothing_can_leave(machine: dict[str, Any] | None) -> None:
    """Test machines without a second memory, without a link back, and with a small host."""
    name = "memory" if machine is None else "device"
    result = remat.solve(NAMED, algorithm="superneurons", machine=machine, budget={name: 24})
    assert starts(result) == timeline(MEMORY_CENTRIC)
    assert result.makespan == 18
    unknown = remat.solve(NAMED, algorithm="superneurons", machine=machine, budget={name: 20})
    assert str(unknown.status) == "unknown"
    assert "no schedule within the budget" in " ".join(unknown.notes)
    tight = remat.solve(NAMED, algorithm="superneurons", machine=machine, budget={name: 15})
    assert str(tight.status) == "infeasible"
    assert tight.least_budget is not None
    assert tight.least_budget.size == 16


@pytest.mark.parametrize("more", [{"channels": ("bus", "bus")}, {"channels": ("gpu", "gpu")}, {"latency": 1}])
def test_other_machines_are_no_slower_than_memory_centric(more: dict[str, Any]) -> None:
    """Overlapped, by segment, it takes 17; no machine takes longer than memory-centric, which never offloads."""
    result = remat.solve(NAMED, algorithm="superneurons", machine=two_memories(1, **more), budget={"device": 24})
    assert result.makespan in (17, 18)


def test_dear_stages_follow_from_names_or_times() -> None:
    assert dear_stages(make_problem(remat.load(NAMED)), None) == [0, 3]
    assert dear_stages(make_problem(remat.load(NAMED)), "relu, CONV_B") == [2, 3]
    unnamed = chain_of([("", time, 1, 1) for time in (1, 5, 2, 6)], input_size=1)
    assert dear_stages(make_problem(remat.load(unnamed)), None) == [1, 3]  # 3.5 or longer
    assert dear_stages(make_problem(remat.load(EQUAL)), None) == [0, 1, 2, 3, 4]
    with pytest.raises(
        remat.OptionError, match="contain 'conv'; its stages are 'stage1', 'stage2', 'stage3', 'stage4'"
    ):
        remat.solve(EQUAL, algorithm="superneurons", options={"stages": "conv"})


def test_cheap_stages_form_segments() -> None:
    assert cheap_segments([0, 3, 4, 6]) == [(1, 3), (5, 6)]
    assert cheap_segments([2]) == [(0, 2)]
    assert cheap_segments([]) == []


@settings(max_examples=25, deadline=None)
@given(chains(plain=True), st.floats(0, 1), st.data())
def test_what_is_dear_runs_forward_once(document: dict[str, Any], share: float, data: st.DataObject) -> None:
    assume("variants" not in str(document))
    document.pop("machine", None)
    names = []
    for stage in document["stages"]:
        stage["name"] = data.draw(st.sampled_from(["conv", "pool"]))
        names += [stage["name"]] * stage.get("repeat", 1)
    assume("conv" in names)
    machine = two_memories(3, 2)
    peak = remat.solve(document, algorithm="keep-all", machine=machine).peak_memory["device"]
    result = remat.solve(document, algorithm="superneurons", machine=machine, budget={"device": int(share * peak)})
    if result.makespan is None:
        return
    runs = [what for _, what in starts(result) if what.startswith("F")]
    for number, name in enumerate(names, 1):
        times = sum(what in (f"F{number}", f"Fe{number}") for what in runs)
        assert times == 1 if name == "conv" else times >= 1


def task(name: str, reads: str, writes: str, time: int = 1, phase: str = "forward", **more: Any) -> dict[str, Any]:
    return {"id": name, "time": time, "reads": reads.split(), "writes": writes.split(), "phase": phase} | more


FORKED = {
    "schema": "remat.instance/3",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "values": [{"id": name, "size": 4} for name in (*"xaprsb", "gb", "gs", "gp", "gr", "ga")],
    "inputs": ["x"],
    "outputs": ["ga"],
    "tasks": [
        task("one.conv", "x", "a"),
        task("conv.pool", "a", "p"),
        task("relu", "a", "r"),
        task("sum", "p r", "s"),
        task("two", "s", "b", origin={"op": "aten.convolution"}),
        task("two'", "s b", "gb", 2, "backward"),
        task("sum'", "gb", "gs", 2, "backward"),
        task("pool'", "gs a p", "gp", 2, "backward"),
        task("relu'", "gs r", "gr", 2, "backward"),
        task("one'", "gp gr x", "ga", 2, "backward"),
    ],
}
"""Five stages, two of them convolutions with a fork and a join between: all values of 4 bytes.

With everything kept, two' holds x a p r s b gb = 28. The segment pool, relu, sum makes 12 bytes, less than the 16 of
pool', so that it is remade at once before two': that holds 28, too. Memory-centric, sum holds x a b p r s = 24, two'
x a s b gb = 20, pool' x a gs p gp, relu' x gs gp r gr.
"""
AT_ONCE = "one.conv conv.pool relu sum two conv.pool relu sum two' sum' pool' relu' one'"
ANEW = "one.conv conv.pool relu sum two relu conv.pool sum two' sum' conv.pool pool' relu relu' one'"


def test_segments_between_a_fork_and_a_join() -> None:
    problem = make_problem(remat.load(FORKED))
    training = training_of(problem, "test")
    dear = dear_tasks(problem, training, None)
    assert dear == [0, 4]  # by the operator, and by the last part of the name
    assert dear_tasks(problem, training, "relu,sum") == [2, 3]
    assert cheap_components(training, dear) == [-1, 1, 1, 1, -1]
    orders = [" ".join(problem.graph.tasks[run] for run in order) for order in remade_in_graph(training, dear)]
    assert orders == [AT_ONCE, ANEW]
    with pytest.raises(remat.OptionError, match="no forward task whose operator contains 'gemm'"):
        dear_tasks(problem, training, "gemm")


def test_a_graph_without_a_second_memory() -> None:
    result = remat.solve(FORKED, algorithm="superneurons", budget=24)
    assert " ".join(what for _, what in starts(result) if not what.startswith("drop")) == ANEW
    assert (result.makespan, result.peak_memory) == (5 + 10 + 5, {"memory": 24})
    assert str(remat.solve(FORKED, algorithm="superneurons", budget=23).status) == "unknown"


def test_a_graph_whose_input_leaves() -> None:
    """Nothing is remade in 24 bytes: x is not read from 1 on, until one' at 13."""
    result = remat.solve(FORKED, algorithm="superneurons", machine=two_memories(4), budget={"device": 24})
    assert result.makespan == 15
    assert {what for _, what in starts(result) if what.startswith("x ")} == {"x out", "x back"}
