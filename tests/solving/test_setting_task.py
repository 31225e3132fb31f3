"""The task that sets a minimum budget is one that needs all of it, for every kind of instance."""

import numpy as np
import pytest

import remat
from remat.generate import generate

ALGORITHMS = {
    "tree": ("auto", "postorder-min-io"),
    "dag": ("auto", "dag-auto"),
    "chain": ("auto", "rotor"),
    "join": ("auto", "keep-all"),
    "adjoint": ("auto", "adjoint-best"),
    "pipeline": ("pipe-plan", "1f1b"),
}


def drawn(kind: str, seed: int) -> remat.Instance:
    """Draw an instance; trees have a host memory, since no task of a tree runs twice."""
    rng = np.random.default_rng(seed)
    if kind == "tree":
        parent = [-1, *((node - 1) // 2 for node in range(1, 60))]
        sizes = {"output_size": rng.integers(1, 20, 60), "workspace": rng.integers(0, 5, 60)}
        return remat.tree(parent, **sizes, machine=remat.device(link=5))
    if kind == "dag":
        return remat.load(generate("dag", "layered", nodes=14, seed=seed))
    columns = {
        "forward_time": rng.integers(1, 5, 6),
        "backward_time": rng.integers(1, 9, 6),
        "output_size": rng.integers(1, 9, 6),
        "saved_size": rng.integers(1, 30, 6),
        "backward_workspace": rng.integers(0, 40, 6),
    }
    if kind == "chain":
        return remat.chain(**columns)
    if kind == "join":
        return remat.join([columns, {key: column[:3] for key, column in columns.items()}])
    if kind == "adjoint":
        sizes = {"state_size": rng.integers(1, 9, 6), "adjoint_size": 1, "tape_size": columns["saved_size"]}
        return remat.adjoint(forward_time=columns["forward_time"], **sizes, storage=[{"name": "ram", "slots": 2}])
    return remat.pipeline(**columns, devices=2, micro_batches=3, link=4)


def needs_of(result: remat.Result) -> list[int]:
    """Return what each task reads, writes and needs while it runs; in place it writes over what it reads."""
    graph = result.graph
    size = graph.size.tolist()
    found = []
    for task in range(len(graph.tasks)):
        read, written = (sum(size[value] for value in of[task].tolist()) for of in (graph.reads, graph.writes))
        added = max(0, written - read) if graph.in_place[task] else written
        found.append(read + added + int(graph.workspace[task]))
    return found


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        *((kind, 3) for kind in ("tree", "dag", "chain", "join", "pipeline")),
        ("adjoint", 1),
        pytest.param("adjoint", 3, marks=pytest.mark.slow),
    ],
)
def test_the_task_that_sets_a_minimum_budget_needs_it(kind, count):
    checked = 0
    for seed in range(count):
        instance = drawn(kind, seed)
        budget = {"tree": {"device": 20}, "adjoint": {"working": 1}}.get(kind, 1)
        for algorithm in ALGORITHMS[kind]:
            result = remat.solve(instance, budget=budget, algorithm=algorithm)
            least, needs = result.least_budget, needs_of(result)
            assert result.makespan is None
            if least is not None and least.size == max(needs):
                assert least.task is not None, (seed, algorithm)
                assert needs[least.task] == least.size, (seed, algorithm)
                checked += 1
    assert checked
