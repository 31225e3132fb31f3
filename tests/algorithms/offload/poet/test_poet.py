"""poet: by hand, and never better than exhaustive search."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.programs.frontier import frontier
from remat_algorithms.offload.poet.frontier_groups import entries, even_ends, grouped
from remat_algorithms.offload.poet.poet import ROUNDED, UNFINISHED, UNSOLVED
from tests.algorithms.offload.small_chains import chains, one_big_value
from tests.oracles.offloading import least_makespan


def solve(document, budget, **options):
    return remat.solve(document, algorithm="poet", budget=budget, options=options)


def test_five_stages_by_hand():
    """x1 leaves in the stage of Fe3 and comes back in that of B4, the only ones that are long enough.

    The stages then take as long as their runs, 23 in all. Placement starts copies as early as possible: x1 leaves at
    2, when Fe2 starts, and fits again when the loss has ended, at 12.
    """
    result = solve(one_big_value(), 17)
    starts = [
        (step.get("run") or step["copy"], step["start"])
        for step in result.to_dict()["steps"]
        if {"run", "copy"} & step.keys()
    ]
    assert sorted(starts) == sorted(
        [
            ("Fe1", 0),
            ("Fe2", 2),
            ("x1", 2),
            ("Fe3", 4),
            ("Fe4", 7),
            ("Fe5", 9),
            ("loss", 11),
            ("B5", 12),
            ("x1", 12),
            ("B4", 14),
            ("B3", 17),
            ("B2", 19),
            ("B1", 21),
        ]
    )
    assert result.makespan == 23
    assert result.status == "optimal"
    assert result.notes == ("makespan of stages that wait for each other: 23; placed without waiting",)


@pytest.mark.parametrize(
    ("traits", "makespan"),
    [
        # Recomputing F1 takes 2; on the processor's channel, each transfer of x1 takes 3.
        ({"channels": ("gpu", "gpu")}, 25),
        ({"host": 5}, 25),
    ],
)
def test_recomputes_where_paging_does_not_pay(traits, makespan):
    result = solve(one_big_value(**traits), 17)
    assert result.makespan == makespan
    assert sum(result.report.transferred.values()) == 0


def test_pays_for_paging():
    """At a fifth of the bandwidth, each transfer of x1 takes 7: 4 more than Fe3 and B4. F1 takes 20 here."""
    document = one_big_value(bandwidth=(1.2, 1.2))
    document["stages"][0]["forward_time"] = 20
    result = solve(document, 17)
    assert result.notes[0].startswith("makespan of stages that wait for each other: 49;")
    # Out from 20 to 27, during Fe2 to Fe4: the loss does not wait. Back from 30 to 37, when B2 is due.
    assert result.makespan == 41


def test_without_a_link_back_poet_does_not_page():
    document = one_big_value()
    document["machine"]["links"].pop()
    assert solve(document, 17).makespan == 25
    with pytest.raises(remat.OptionError, match="'host' is not a memory"):
        solve(document, 17, memory="host")


def test_unknown_memory_and_solver():
    with pytest.raises(remat.OptionError, match="'disk' is not a memory"):
        solve(one_big_value(), 17, memory="disk")
    with pytest.raises(remat.OptionError, match="PuLP has no solver 'NOBODY'"):
        solve(one_big_value(), 17, solver="pulp:NOBODY")


def test_an_infeasible_budget_is_proved_with_the_minimum():
    result = solve(one_big_value(), 11)
    assert result.status == "infeasible"
    assert result.least_budget.size == 12


@settings(max_examples=15, derandomize=True, database=None, deadline=None)
@given(document=chains(largest=2), share=st.integers(0, 60))
def test_never_better_than_exhaustive_search(document, share):
    free = remat.solve(document, algorithm="keep-all")
    low, high = free.memory_bounds["device"].size, free.peak_memory["device"]
    budget = low + (high - low) * share // 100
    found = solve(document, budget)
    best = least_makespan(document, budget, recompute=True, states=2000)
    if best is None:
        assert found.makespan is None
    elif not math.isnan(best) and found.makespan is not None:
        assert found.makespan >= float(best) - 1e-9
        staged = float(found.notes[0].split(": ")[1].split(";")[0]) if found.notes else math.inf
        assert found.makespan <= staged * (1 + 1e-5) + 1e-9  # the note has six digits


def on_host(bandwidth):
    """Return the machine of `one_big_value` with this bandwidth in both directions."""
    return one_big_value(bandwidth=(bandwidth, bandwidth), latency=(0, 0))["machine"]


def halfway(document, machine, share=0.5):
    """Return a budget between what single tasks need and what keeping all takes, and that schedule's makespan."""
    free = remat.solve(document, algorithm="keep-all", machine=machine)
    low, high = free.memory_bounds["device"].size, free.peak_memory["device"]
    return int(low + share * (high - low)), free.makespan


@pytest.mark.parametrize("solver", ["cp-sat", "scip", "highs", "pulp"])
def test_every_solver_finds_the_same_stages(solver):
    document = one_big_value(bandwidth=(1.2, 1.2))
    document["stages"][0]["forward_time"] = 20
    result = solve(document, 17, solver=solver)
    assert result.notes[0].startswith("makespan of stages that wait for each other: 49;")


def test_a_graph_of_many_tasks_is_answered_in_fewer_stages():
    """Of 78 tasks several are a stage; the schedule is never worse than that of the greedy, from which it starts."""
    document, machine = remat.example("dags/vgg16_b32_224"), on_host("12GB/s")
    budget, least = halfway(document, machine, 0.6)
    options = {"work": 0.02, "stages": 8}
    result = remat.solve(document, algorithm="poet", machine=machine, budget=budget, options=options)
    assert least < result.makespan <= 1.011 * least
    assert "the program has 9 stages of several tasks each, in place of 79" in result.notes
    without = remat.solve(
        document, algorithm="poet", machine=machine, budget=budget, options=options | {"start": False}
    )
    assert without.makespan is None or without.makespan >= result.makespan


@pytest.mark.slow
def test_larger_graphs_get_better_from_a_start():
    """On a chain whose program is searched value by value, the result beats the greedy schedule."""
    document = generate("chain", "random", length=10, seed=3, max_workspace=30)
    machine = on_host(20)
    budget, _ = halfway(document, machine, 0.4)
    before = remat.solve(document, algorithm="dag-auto", machine=machine, budget=budget, options={"iterations": 1})
    after = remat.solve(document, algorithm="poet", machine=machine, budget=budget, options={"work": 0.1})
    again = remat.solve(document, algorithm="poet", machine=machine, budget=budget, options={"work": 0.1})
    assert after.makespan < before.makespan
    assert after.notes[0].startswith("makespan of stages")
    assert again.to_dict()["steps"] == after.to_dict()["steps"]


@settings(max_examples=25, derandomize=True, database=None, deadline=None)
@given(document=chains(largest=3), count=st.integers(1, 9))
def test_groups_of_stages_restrict_the_program(document, count):
    """Schedules of fewer stages are schedules: never better than all stages, as stages wait for each other."""
    problem = make_problem(remat.load(document), budget=10**6)
    front = frontier(problem)
    fewer = grouped(front, even_ends(front, count))
    assert fewer.stages <= front.stages
    assert fewer.end[-1] == front.end[-1]
    for position in range(len(front.tasks)):
        assert 0 <= fewer.first[position] <= fewer.last[position] or front.last[position] < front.first[position]
        assert position <= fewer.end[fewer.first[position]] or position > front.end[front.first[position]]
    assert entries(fewer) <= entries(front)


@pytest.mark.parametrize("budget", [3, 5, 8])
def test_what_lies_in_the_second_memory_makes_room_there(budget):
    """The first state fills the storage: another one goes there only when it is dropped."""
    document = {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "steps": [{"state_size": 3}, {}, {"state_size": 5}, {}, {}, {"adjoint_size": 7}],
        "state_size": 2,
        "adjoint_size": 4,
        "forward_time": 9,
        "tape_size": 3,
        "tape_time": 5,
        "storage": [{"name": "ram"}],
        "initial_state": "ram",
    }
    result = solve(document, {"ram": budget})
    assert result.report.ok
    assert ROUNDED not in result.notes
    assert result.peak_memory["ram"] <= budget


@pytest.mark.parametrize("pinned", [True, False])
def test_what_must_end_in_the_second_memory_stays_there(pinned):
    """An input starts in both memories and must end in the host, which never frees its copy."""
    document = one_big_value()
    graph = remat.load(document)
    problem = make_problem(graph)
    tasks = [
        {
            "id": problem.graph.tasks[task],
            "time": int(problem.graph.time[task]),
            "reads": [problem.graph.values[value] for value in problem.graph.reads[task].tolist()],
            "writes": [problem.graph.values[value] for value in problem.graph.writes[task].tolist()],
        }
        for task in range(len(problem.graph.tasks))
    ]
    values = [
        {"id": name, "size": int(size)} for name, size in zip(problem.graph.values, problem.graph.size, strict=True)
    ]
    both = [{"value": "x0", "memory": memory} for memory in ("device", "host")]
    lowered = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values, "inputs": both}
    lowered |= {"outputs": [both[1]], "machine": document["machine"]} | ({"pinned_inputs": ["x0"]} if pinned else {})
    x0 = next(value["size"] for value in values if value["id"] == "x0")
    for budget in range(14, 22):
        result = solve(lowered, {"device": budget, "host": x0 + 4})
        assert ROUNDED not in result.notes
        assert result.columns is None or result.peak_memory["host"] >= x0


@pytest.mark.parametrize(
    ("options", "reason"), [({"stages": 2}, UNSOLVED), ({"work": 1e-6, "start": False}, UNFINISHED)]
)
def test_unknown_has_a_reason(options, reason):
    result = solve(remat.example("random_l30"), "60%", **options)
    assert result.status == "unknown"
    assert reason in result.notes
