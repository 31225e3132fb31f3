"""The numbering of trees, memory along orders, and what is proposed on which machine."""

import random

import numpy as np
import pytest

import remat
from remat_algorithms.tree import liu
from remat_algorithms.tree.tree_arrays import TRAVERSALS, TaskTree, postorder_by
from tests.algorithms.tree.trees import document, is_postorder, random_parents, random_weights, simulate, tree

ALGORITHMS = ("postorder", "liu-postorder", "liu", "minmem")
EXACT = ("liu", "minmem")
STAR = document([-1, 0, 0, 0], [1, 5, 2, 4], [3, 1, 9, 1])  # the root needs 15; by numbers T2 needs 16
TRAP = document([-1, 0, 0, 1, 2, 3, 4], [0, 6, 6, 1, 1, 12, 12])  # best post-order 19, optimum 14


@pytest.mark.parametrize("labels", ["shuffled", "children first", "parents first"])
def test_nodes_are_numbered_independently_of_labels(labels):
    parent = random_parents(random.Random(3), 60, 4)
    if labels != "shuffled":
        draw = random.Random(4)
        parent = [-1] + [draw.randrange(node) for node in range(1, 60)]
        if labels == "children first":
            parent = [59 - above for above in reversed(parent[1:])] + [-1]
    numbered = tree(parent, range(60), range(0, 120, 2))
    assert sorted(numbered.node.tolist()) == list(range(60))
    assert (numbered.size == numbered.node).all()
    assert (numbered.workspace == 2 * numbered.node).all()
    assert parent[numbered.node[numbered.root]] == -1
    rows = dict.fromkeys(range(60), (0, 0)) | {place: (start, end) for place, start, end in numbered.rows()}
    for place, (start, end) in rows.items():
        assert end <= place or start == end
        children = numbered.node[start:end].tolist()
        assert children == [child for child, above in enumerate(parent) if above == numbered.node[place]]
    seen = set()
    for place, start, end in numbered.rows():
        assert {child for child in range(start, end) if rows[child] != (0, 0)} <= seen
        seen.add(place)
    assert [row[0] for row in numbered.rows()] == [row[0] for row in numbered.rows_top_down()][::-1]


@pytest.mark.parametrize("seed", range(40))
def test_memory_along_an_order(seed):
    parent, size, workspace = random_weights(seed, largest=25)
    numbered = tree(parent, size, workspace)
    order = postorder_by(numbered)
    nodes = numbered.node[order].tolist()
    peak, place = numbered.peak_of(order)
    assert simulate(parent, size, workspace, nodes) == peak
    assert numbered.memory_along(order)[order.tolist().index(place)] == peak
    assert is_postorder(parent, nodes)
    ranked = {node: at for at, node in enumerate(nodes)}
    siblings = [[c for c, above in enumerate(parent) if above == node] for node in range(len(parent))]
    assert all([ranked[c] for c in row] == sorted(ranked[c] for c in row) for row in siblings)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(6))
def test_out_trees_are_traversed_backwards(algorithm, seed):
    parent, size, workspace = random_weights(seed, largest=40)
    inward = remat.solve(document(parent, size, workspace, static_memory=7), algorithm=algorithm)
    outward = remat.solve(document(parent, size, workspace, static_memory=7, orientation="out"), algorithm=algorithm)
    assert [step.task for step in outward.steps] == [step.task for step in inward.steps][::-1]
    assert outward.peak_memory == inward.peak_memory


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_least_budget_names_the_task_that_sets_it(algorithm):
    result = remat.solve(STAR, algorithm=algorithm, budget=5)
    assert result.status == "infeasible"
    assert result.least_budget.sufficient
    assert remat.solve(STAR, algorithm=algorithm, budget=result.least_budget.size).status == "optimal"
    less = remat.solve(STAR, algorithm=algorithm, budget=result.least_budget.size - 1)
    assert less.least_budget == result.least_budget
    assert result.graph.tasks[result.least_budget.task] == ("T2" if algorithm == "postorder" else "T0")


@pytest.mark.parametrize("algorithm", EXACT)
def test_infeasible_within_all_schedules_on_one_memory(algorithm):
    for count in (1, 3):
        machine = {"memories": [{"name": "ram"}], "processors": [{"name": "p", "memory": "ram", "count": count}]}
        result = remat.solve(TRAP, algorithm=algorithm, budget=13, machine=machine)
        assert (result.status, result.scope) == ("infeasible", "all schedules")
        assert result.least_budget.size == 14


@pytest.mark.parametrize("algorithm", EXACT)
def test_infeasible_within_one_memory_where_there_are_two(algorithm):
    machine = {
        "memories": [{"name": "ram"}, {"name": "disk"}],
        "processors": [{"name": "p", "memory": "ram"}],
        "links": [{"source": "ram", "target": "disk"}, {"source": "disk", "target": "ram"}],
    }
    result = remat.solve(TRAP, algorithm=algorithm, budget=13, machine=machine)
    assert (result.status, result.scope) == ("unknown", TRAVERSALS)
    # Through the disk it is possible, so a proof over all schedules would be wrong.
    steps = [{"run": "T5"}, {"run": "T3", "drop": ["v5"]}, {"run": "T1", "drop": ["v3"]}]
    steps += [{"copy": "v1", "from": "ram", "to": "disk", "drop": True}]
    steps += [{"run": "T6"}, {"run": "T4", "drop": ["v6"]}, {"run": "T2", "drop": ["v4"]}]
    steps += [{"copy": "v1", "from": "disk", "to": "ram", "drop": True}, {"run": "T0", "drop": ["v1", "v2"]}]
    machine["memories"][0]["capacity"] = 13
    report = remat.verify(TRAP, {"schema": "remat.schedule/1", "steps": steps, "machine": machine})
    assert report.ok, report.violations


def test_postorder_optimum_is_no_proof_for_all_schedules():
    result = remat.solve(TRAP, algorithm="liu-postorder", budget=14)
    assert (result.status, result.scope, result.least_budget.size) == ("unknown", "post-order traversals", 19)
    assert remat.solve(TRAP, algorithm="liu", budget=14).status == "optimal"
    assert remat.solve(TRAP, budget=14).algorithm == "liu"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shape", ["chain", "chain, shuffled", "star", "caterpillar"])
def test_large_trees_need_no_recursion(algorithm, shape):
    """Traversals use no recursion and no time quadratic in the number of children."""
    n = 20_000
    parent = {
        "chain": [-1, *range(n - 1)],
        "star": [-1] + [0] * (n - 1),
        "caterpillar": [-1] + [node // 2 * 2 - 2 if node % 2 == 0 else node - 1 for node in range(1, n)],
    }.get(shape) or random_parents(random.Random(1), n, 1)
    size = [(node * 7919) % 1000 for node in range(n)]
    result = remat.solve(document(parent, size), algorithm=algorithm)
    assert result.status == "optimal"
    if shape == "chain":
        assert result.peak_memory["memory"] == int(np.max(np.add(size, [*size[1:], 0])))
    if shape == "star":
        assert result.peak_memory["memory"] == sum(size)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sizes_near_the_limit(algorithm):
    half = 2**61
    result = remat.solve(document([-1, 0, 0], [0, half, half - 9], [1, 3, 2]), algorithm=algorithm)
    assert result.peak_memory == {"memory": 2 * half - 9 + 2}


@pytest.mark.parametrize("seed", range(6))
def test_liu_compiled_is_its_twin(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        n = int(rng.integers(1, 60))
        back = int(rng.choice([1, 3, 60]))
        parent = np.array([-1, *(int(rng.integers(max(0, node - back), node)) for node in range(1, n))])
        tree = TaskTree.from_arrays(parent, rng.integers(0, 12, n), rng.integers(0, 8, n) * rng.integers(0, 2, n))
        monkeypatch.setattr(liu, "COMPILED_FROM", n + 1)
        plain = liu.best_traversal(tree)
        monkeypatch.setattr(liu, "COMPILED_FROM", 0)
        assert (liu.best_traversal(tree) == plain).all()
