"""Budgets: sizes and shares, the same from Python and from the command line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.plugin.problem import budget_memory
from remat.solving.budget import meant_size
from remat.solving.problem_setup import make_problem

CHAIN: dict[str, Any] = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "units": {"time": "unit", "memory": "unit"},
    "input_size": 2,
    "stages": [
        {"forward_time": 1, "backward_time": 2, "output_size": 3, "saved_size": 4},
        {"forward_time": 2, "backward_time": 3, "output_size": 2, "saved_size": 1},
        {"forward_time": 1, "backward_time": 1, "output_size": 4, "saved_size": 2},
    ],
}
LINKED = {
    "memories": [{"name": "device", "capacity": 30}, {"name": "host"}],
    "processors": [{"name": "gpu", "memory": "device"}],
    "links": [{"source": "device", "target": "host"}, {"source": "host", "target": "device"}],
}
LOOP = dict(generate("adjoint", "uniform", steps=11, storage="ram:slots=4;disk:slots=3,write_time=1"))


def capacities(document: dict[str, Any], budget: Any, machine: Any = None) -> dict[str, int | None]:
    problem = make_problem(remat.load(document), budget=budget, machine=machine)
    return {memory.name: memory.capacity for memory in problem.machine.memories}


@pytest.mark.parametrize(
    ("share", "size"), [("75%", 18), (" 75 % ", 18), ("99.9%", 23), ("150%", 36), ("100%", 24), ("1e-2%", 0)]
)
def test_a_share_is_a_size(share: str, size: int) -> None:
    assert capacities(CHAIN, share) == capacities(CHAIN, {"": share}) == capacities(CHAIN, {"memory": share})
    assert capacities(CHAIN, share) == {"memory": size}


def test_a_share_is_of_the_memory_that_it_names() -> None:
    linked = CHAIN | {"machine": LINKED}
    assert capacities(linked, {"device": "75%"}) == {"device": 18, "host": None}
    assert capacities(linked, {"device": "75%", "host": 7}) == {"device": 18, "host": 7}
    assert capacities(CHAIN, {"device": "50%"}, LINKED) == {"device": 12, "host": None}
    with pytest.raises(remat.OptionError, match="budget: 75% of 0: 'host' is empty without recom"):
        capacities(linked, {"host": "75%"})
    with pytest.raises(remat.OptionError, match="unknown memory 'disk'; this machine has 'device', 'host'"):
        capacities(linked, {"disk": "75%"})


def test_a_share_is_of_the_first_storage_level() -> None:
    stored = remat.solve(LOOP, algorithm="store-all", budget={"": None}).peak_memory["ram"]
    assert capacities(LOOP, "50%")["ram"] == capacities(LOOP, {"ram": "50%"})["ram"] == stored // 2


def test_a_share_is_of_what_is_copied_in_where_that_begins_elsewhere() -> None:
    far = CHAIN | {"machine": LINKED, "schema": "remat.instance/2", "parameter_memory": "host"}
    far["stages"] = [stage | {"parameter_size": 3} for stage in CHAIN["stages"]]
    near = {key: value for key, value in far.items() if key != "parameter_memory"}
    assert capacities(far, "80%") == capacities(near, "80%") == {"device": 28, "host": None}
    assert capacities(graph_from("host"), "80%") == capacities(graph_from("device"), "80%")
    assert remat.solve(graph_from("host"), budget="100%", algorithm="offload-greedy").recompute_time == 0


def graph_from(memory: str, **more: Any) -> dict[str, Any]:
    names = ["a", "b", "c", "d"]
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "machine": LINKED | more,
        "inputs": [{"value": "x", "memory": memory}],
        "outputs": ["d"],
        "values": [{"id": "x", "size": 3}],
        "tasks": [
            {"id": k, "time": 2, "reads": sorted({j, "x"}), "size": 5}
            for j, k in zip(["x", *names], names, strict=False)
        ],
    }


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(remat.OptionError, match="80% of an unknown peak: no schedule without recomputation is"):
        capacities(graph_from("host", links=[]), "80%")
    (cell,) = remat.compare(graph_from("host", links=[]), algorithms="dag-auto", budgets=["80%"], jobs=1)
    assert cell.answer.detail.startswith(
        "budget: 80% of an unknown peak: no schedule without recomputation is known; write"
    )


@pytest.mark.parametrize("share", ["0%", "-5%", "x%", "%", "nan%", "20000%", "1e999999%"])
def test_what_is_no_share(share: str) -> None:
    with pytest.raises(remat.OptionError, match=r"is not a share of the peak; write a size such as 8GB, or 80%"):
        remat.solve(CHAIN, budget=share)


@settings(deadline=None, max_examples=15)
@given(
    st.lists(
        st.fixed_dictionaries({name: st.integers(1, 9) for name in ("forward_time", "backward_time", "output_size")}),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 300),
)
def test_shares_are_of_what_show_says(stages: list[dict[str, int]], percent: int) -> None:
    document = CHAIN | {"stages": stages}
    whole = remat.show(document).no_recompute_peak
    assert whole is not None
    assert capacities(document, f"{percent}%") == {"memory": percent * whole // 100}


def test_questions_take_shares() -> None:
    swept = remat.sweep(CHAIN, "rotor", budgets=["75%", 18, "100%"])
    assert [point.budget for point in swept.curves[0].answers] == [18, 24]
    linked = CHAIN | {"machine": LINKED}
    least = remat.least_budget(linked, max_overhead="20%", algorithm="rotor", budget={"host": "9"})
    assert least.answer is not None
    assert least.answer.value == remat.least_budget(linked, max_overhead=0.2, algorithm="rotor").answer.value  # type: ignore[union-attr]
    one, other = (remat.largest_batch(CHAIN, budget=size, algorithm="rotor").answer for size in ("500%", 120))
    assert one is not None
    assert other is not None
    assert one.value == other.value
    facts = remat.show(CHAIN, budget="75%")
    assert facts.machine.memories[0].capacity == 18
    with pytest.raises(remat.OptionError, match="budgets: '0%' is not a share"):
        remat.sweep(CHAIN, "rotor", budgets=["0%"])


@pytest.mark.parametrize(
    ("size", "meant"),
    [
        ("16", "16GB"),
        ("24", "24GB"),
        ("900", "900MB"),
        ("16000", "16000MB"),
        ("700000", "700000kB"),
        ("800000000", ""),
        ("16GB", ""),
        ("0", ""),
        ("9" * 40, ""),
    ],
)
def test_numbers_far_too_small_for_bytes(size: str, meant: str) -> None:
    problem = make_problem(remat.load(remat.example("resnet50")))
    memory = problem.machine.memories[budget_memory(problem.instance, problem.machine)].name
    assert meant_size(size, problem, memory) == meant


def test_small_numbers_are_meant_where_little_is_needed() -> None:
    for document in (CHAIN, {key: CHAIN[key] for key in CHAIN if key != "units"}):
        problem = make_problem(remat.load(document))
        assert [meant_size(size, problem, "memory") for size in (1, 8, 16, 1000)] == ["", "", "", ""]
