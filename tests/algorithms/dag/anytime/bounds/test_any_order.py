"""Test `dag-auto`'s claims over all schedules, which need a bound over all orders."""

import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.anytime.bounds.bound_search import speaks_for_all
from remat_algorithms.dag.plans.model import stage_model
from tests.algorithms.dag.anytime.test_dag_auto import keep_peak
from tests.algorithms.dag.moments.drawn import none_fits
from tests.oracles import search


def small(**more):
    tasks = [
        {"id": "a", "time": 1, "reads": [], "writes": ["x"]},
        {"id": "b", "time": 1, "reads": ["x"], "writes": ["y"]},
    ]
    values = [{"id": "x", "size": 1}, {"id": "y", "size": 1}]
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values, "outputs": ["y"], **more}


def speaks(document):
    problem = make_problem(remat.load(document))
    return speaks_for_all(problem, stage_model(problem))


def test_claims_for_all_schedules_only_where_there_is_nothing_else_to_do():
    assert speaks(small())
    host = {
        "memories": [{"name": "device", "capacity": 2}, {"name": "host"}],
        "processors": [{"name": "p", "memory": "device"}],
        "links": [{"source": "device", "target": "host", "bandwidth": 1}],
    }
    assert not speaks(small(machine=host))
    two = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m"}, {"name": "q", "memory": "m"}]}
    assert not speaks(small(machine=two))
    other = {"id": "c", "time": 1, "reads": [], "writes": ["x"], "required": False}
    assert not speaks(small(tasks=[*small()["tasks"], other]))
    # The input x has a producer that can never run, but it still counts as an unexplored second producer.
    assert not speaks(small(inputs=["x"]))


def test_infeasible_in_any_order():
    document = none_fits()
    result = remat.solve(document, algorithm="dag-auto", budget=8)
    assert search.chain_best(document, 8) is None
    assert (result.status, result.scope) == ("infeasible", "all schedules")


@pytest.mark.parametrize("options", [{}, pytest.param({"reorder": True}, marks=pytest.mark.slow), {"iterations": 3}])
def test_a_training_graph_is_optimal_in_any_order(options):
    instance = remat.load(remat.example("unet_joint"))
    budget = keep_peak(instance) * 8 // 10
    result = remat.solve(instance, algorithm="dag-auto", budget=budget, time_limit=30, threads=2, options=options)
    assert (result.status, result.optimal_within) == ("optimal", "all schedules")
    assert result.makespan > remat.solve(instance, algorithm="keep-all").makespan


def test_no_claim_for_all_schedules_beside_a_second_memory():
    tasks = [{"id": f"f{i}", "time": 1, "size": 1, "reads": [f"f{i - 1}"] if i else []} for i in range(6)]
    tasks += [
        {"id": f"b{i}", "time": 1, "size": 1, "reads": [f"f{i}", *([f"b{i + 1}"] if i < 5 else [])]}
        for i in reversed(range(6))
    ]
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "outputs": ["b0"]}
    host = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "p", "memory": "device"}],
        "links": [
            {"source": "device", "target": "host", "bandwidth": 100},
            {"source": "host", "target": "device", "bandwidth": 100},
        ],
    }
    budget = {"device": keep_peak(document) - 1}
    result = remat.solve({**document, "machine": host}, algorithm="dag-auto", budget=budget)
    assert result.makespan > remat.solve(document, algorithm="keep-all").makespan
    assert result.optimal_within == "schedules in the reference order, in one memory"
    assert [bound.source for bound in result.bounds if bound.scope == "all schedules"] == ["needed tasks"]
