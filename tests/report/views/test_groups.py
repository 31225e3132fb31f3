"""Values in groups: by module, by part of the program, by operation, or one by one; the heaviest by name."""

import numpy as np
import pytest

import remat
from remat.instance import load
from remat.report.views.composition import Extra, composition_of
from remat.report.views.groups import MOST_GROUPS, OTHERS, groups_of
from remat.solving.problem_setup import make_problem


def graph_of(names, modules=None):
    tasks = [
        {"id": name, "time": 1, "writes": [f"v{k}"], **({"reads": [f"v{k - 1}"]} if k else {})}
        for k, name in enumerate(names)
    ]
    for task, module in zip(tasks, modules or [], strict=False):
        task["origin"] = {"module": module}
    values = [{"id": f"v{k}", "size": 1} for k in range(len(names))]
    document = {"schema": "remat.instance/3", "kind": "dag", "values": values, "tasks": tasks}
    return make_problem(load(document)).graph


def labels(graph, weight=None):
    count = len(graph.values)
    found = groups_of(
        graph, np.ones(count) if weight is None else np.array(weight, float), np.arange(count, dtype=float)
    )
    return found, [found.labels[k] for k in found.of_value.tolist()]


def test_parts_of_a_program_and_their_gradients():
    names = ["stem", "body.up", "body.down", "head", "d.head", "body.down.dX", "dW.body.up", "stem.dX", "head.dW"]
    found, of = labels(graph_of(names))
    assert found.by == "part"
    assert of == ["stem", "body.up", "body.down", "head", "head", "body.down", "body.up", "stem", "head"]


def test_layers_are_ranges_in_their_order():
    names = [f"{layer}.{what}" for layer in range(10) for what in ("up", "norm", "gelu", "down")]
    found, _ = labels(graph_of(names))
    assert found.labels == ("0.* to 2.*", "3.* to 5.*", "6.* to 7.*", "8.* to 9.*")


def test_operations_where_names_are_numbered():
    names = [f"t:{what}_{k}" for k in range(6) for what in ("convolution", "relu")]
    found, of = labels(graph_of(names))
    assert found.by == "operation"
    assert of == ["convolution", "relu"] * 6


def test_single_values_and_the_rest():
    found, of = labels(graph_of([f"t{k}" for k in range(30)]), [100 - k for k in range(30)])
    assert found.by == "value"
    assert found.labels == (*(f"v{k}" for k in range(MOST_GROUPS)), OTHERS)
    assert of[MOST_GROUPS:] == [OTHERS] * (30 - MOST_GROUPS)


def test_modules_and_what_has_none():
    """Layers are ranges within their module; a task without a module belongs to the part that its name says."""
    names = [f"t{k}" for k in range(40)] + ["softmax", "softmax.dX"]
    modules = [f"net.layers.{k // 4}.{'up' if k % 2 else 'down'}" for k in range(40)] + ["", ""]
    found, _ = labels(graph_of(names, modules))
    assert found.by == "module"
    ranges = ("net.layers.0 to 2", "net.layers.3 to 5", "net.layers.6 to 7", "net.layers.8 to 9")
    assert found.labels == (*ranges, "softmax")


def test_a_part_that_has_nearly_everything_is_taken_apart():
    names = ["stem", *(f"net.{block}.{k}" for block in ("a", "b", "c") for k in range(4))]
    assert set(labels(graph_of(names))[1]) == {"stem", "net.a", "net.b", "net.c"}


def test_what_fills_the_peak_is_named():
    result = remat.solve(remat.example("gpt2_small_step"), algorithm="keep-all")
    found = composition_of(result, grouped=True)
    (contents,) = found.grouped
    at_peak = contents.sizes[:, int(np.argmax(contents.total))]
    assert len(at_peak) == len(found.groups.labels) + len(Extra)
    named = sum(size for label, size in zip(found.groups.labels, at_peak.tolist(), strict=False) if label != OTHERS)
    assert named > 0.9 * at_peak.sum()


@pytest.mark.parametrize("count", [1, 2])
def test_tiny_graphs_have_groups(count):
    found, of = labels(graph_of([f"task{k}" for k in range(count)]))
    assert len(of) == count
    assert set(of) <= set(found.labels)
