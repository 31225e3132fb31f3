"""Layers of training graphs, by names and by narrow points."""

from __future__ import annotations

from typing import Any

import pytest

import remat
from remat.generate import generate
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.layering import OUTSIDE, Layering, by_names, by_narrow_points, layers_of
from remat_algorithms.dag.literature.retention_phases import Training, training_of
from tests.algorithms.dag.layered_training import layered


def training(document: dict[str, Any]) -> Training:
    return training_of(make_problem(remat.load(document), budget=10**15), "a test")


def _task(name: str, reads: list[str], write: str, phase: str) -> dict[str, Any]:
    return {"id": name, "time": 1, "reads": reads, "writes": [write], "phase": phase}


def named(names: list[str], modules: list[str] | None = None) -> Training:
    """Return a chain of forward tasks with these names, each with one backward task."""
    count = len(names)
    values = [{"id": f"v{k}", "size": 1} for k in range(count)] + [{"id": f"d{k}", "size": 1} for k in range(count + 1)]
    tasks = [_task(name, [f"v{k - 1}"] if k else [], f"v{k}", "forward") for k, name in enumerate(names)]
    tasks.append(_task("start", [], f"d{count}", "backward"))
    tasks += [_task(f"b{k}", [f"v{k}", f"d{k + 1}"], f"d{k}", "backward") for k in reversed(range(count))]
    if modules is not None:
        for task, module in zip(tasks, modules, strict=False):
            task["origin"] = {"module": module}
    return training(
        {
            "schema": "remat.instance/3" if modules else "remat.instance/1",
            "kind": "dag",
            "units": {"time": "unit", "memory": "unit"},
            "values": values,
            "tasks": tasks,
        }
    )


def test_layers_of_numbered_tasks() -> None:
    found = by_names(training(layered(3)))
    # Three tasks a layer, the loss, and a backward for each.
    assert found == Layering((0, 0, 0, 1, 1, 1, 2, 2, 2, OUTSIDE, 2, 1, 0), 3)


@pytest.mark.parametrize(
    ("names", "layers"),
    [
        (["embed", "h.0.a", "h.0.b", "h.1.a", "h.1.b", "norm"], [-1, 0, 0, 1, 1, -1]),
        # A layer ends where another one begins, and goes on behind tasks of none.
        (["0.a", "0.b", "sum", "0.c", "1.a", "1.b", "0.d", "0.e"], [0, 0, -1, 0, 1, 1, 2, 2]),
        # m1 and e2 are no numbers; conv1_2 has one.
        (["m1.3.a", "m1.3.e2.b", "m1.4.a", "m1.4.b"], [0, 0, 1, 1]),
        (["conv1_1", "conv1_1.relu", "conv1_2", "conv1_2.relu"], [0, 0, 1, 1]),
        # Names that number every task tell nothing.
        (["add_1", "mul_2", "add_3", "mul_4"], [-1, -1, -1, -1]),
        # Few tasks of a layer: the second number does not count.
        (["s.0.0.a", "s.0.1.a", "s.0.1.b", "s.1.0.a", "s.1.0.b"], [0, 0, 0, 1, 1]),
    ],
)
def test_layers_of_names(names: list[str], layers: list[int]) -> None:
    found = by_names(named(names))
    assert list(found.layer[: len(names)]) == layers
    assert found.count == max(layers) + 1


def test_second_numbers_count_where_layers_are_long() -> None:
    names = [f"stage.{s}.block.{b}.op{k}" for s in range(2) for b in range(3) for k in range(6)]
    assert by_names(named(names)).count == 6
    # In some layers only, they do not.
    assert by_names(named([*names[:18], *(f"stage.1.op{k}" for k in range(18))])).count == 2


def test_modules_come_before_names() -> None:
    found = by_names(named(["a.0.x", "a.0.y", "a.1.x", "a.1.y"], ["m.7", "m.8", "m.8", "m.8"]))
    assert found.layer[:4] == (0, 1, 1, 1)


def test_backward_tasks_without_a_name_follow_what_they_read() -> None:
    found = by_names(named(["0.a", "0.b", "1.a", "1.b"]))
    assert found.layer[5:] == (1, 1, 0, 0)


def test_chains_have_a_layer_a_stage() -> None:
    document = generate("chain", "homogeneous", length=4)
    found = by_names(training(document))
    assert found.count == 4
    assert found.layer == (0, 1, 2, 3, 3, 3, 2, 1, 0)  # the loss reads what the last stage has made


def test_cuts_are_where_few_bytes_cross() -> None:
    """Blocks of a transformer: only the residual stream goes on at their ends, and in their middles."""
    document = generate("dag", "transformer", layers=6, hidden=64, heads=4, sequence=32, vocabulary=64, dropout=False)
    train = training(document)
    found = by_narrow_points(train, 6)
    names = [train.stages.graph.tasks[task] for task in train.stages.tasks[: train.forward]]
    ends = [names[stage] for stage in range(train.forward - 1) if found.layer[stage] != found.layer[stage + 1]]
    assert len(ends) == 5
    assert all(name.endswith(("residual1", "residual2")) for name in ends)


def test_every_forward_task_is_of_a_layer_between_narrow_points() -> None:
    train = training(layered(5))
    for count in range(1, 20):
        found = by_narrow_points(train, count)
        layer = list(found.layer[: train.forward])
        assert layer == sorted(layer)
        assert set(layer) == set(range(found.count))
        assert found.count <= count


def test_narrow_points_where_names_tell_nothing() -> None:
    train = named([f"add_{k}" for k in range(16)])
    assert layers_of(train, "names").count == 4
    assert layers_of(train, "names", 2).count == 2
    assert layers_of(training(layered(3)), "names", 2).count == 3
