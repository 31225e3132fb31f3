"""Test gradients that are only outputs: they are computed once, where that costs least."""

import pytest

import remat
from remat.schedule.document import Run

LAYERS = 3


def training(gradients, activations, workspaces):
    """A step of three layers; `g` are the weights' gradients, which no task reads."""
    values = [{"id": "x0", "size": activations[0]}]
    tasks = []
    for i in range(1, LAYERS + 1):
        values.append({"id": f"x{i}", "size": activations[i]})
        tasks.append({"id": f"f{i}", "time": 2, "reads": [f"x{i - 1}"], "writes": [f"x{i}"]})
    values += [{"id": f"y{i}", "size": activations[i]} for i in range(1, LAYERS + 1)]
    tasks.append({"id": "loss", "time": 1, "reads": [f"x{LAYERS}"], "writes": [f"y{LAYERS}"]})
    for i in range(LAYERS, 0, -1):
        values.append({"id": f"g{i}", "size": gradients[i - 1]})
        tasks.append({"id": f"w{i}", "time": 2, "reads": [f"x{i - 1}", f"y{i}"], "writes": [f"g{i}"]})
        if i > 1:
            tasks.append({"id": f"b{i}", "time": 2, "reads": [f"x{i - 1}", f"y{i}"], "writes": [f"y{i - 1}"]})
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "values": values,
        "tasks": [task | {"workspace": workspaces.get(task["id"], 0)} for task in tasks],
        "inputs": ["x0"],
        "outputs": [f"g{i}" for i in range(1, LAYERS + 1)],
    }


@pytest.mark.parametrize("name", ["checkmate", "moccasin", "dag-auto"])
@pytest.mark.parametrize(
    ("document", "best"),
    [
        (training((1, 1, 8), (4, 4, 4, 4), {"b2": 10, "w1": 6}), {26: 22, 30: 19, 34: 17}),
        (training((2, 4, 6), (2, 2, 2, 2), {"w1": 12}), {19: 26, 22: 21, 25: 19}),
    ],
)
def test_each_gradient_is_made_once(document, best, name):
    for budget, makespan in best.items():
        result = remat.solve(document, algorithm=name, budget=budget)
        assert result.makespan == makespan  # as `dag-exact` has it
        runs = [step.task for step in result.steps if isinstance(step, Run)]
        assert all(runs.count(f"w{i}") == 1 for i in range(1, LAYERS + 1))
