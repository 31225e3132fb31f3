from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from remat.generate.dag import random_dag, series_parallel_dag
from remat.generate.layered import ORDERS, layered_dag, local_layered_dag

Generator = Callable[..., dict[str, Any]]
SHAPES: dict[str, Generator] = {
    "layered": layered_dag,
    "layered-local": local_layered_dag,
    "random": random_dag,
    "series-parallel": series_parallel_dag,
}
RICH = {
    "zero_probability": 0.1,
    "workspace_probability": 0.3,
    "multi_output_probability": 0.4,
    "alternative_probability": 0.3,
}


def check_structure(made: dict[str, Any]) -> None:
    """Listed order topological, names unique and known, every value written."""
    values = {value["id"] for value in made["values"]}
    assert len(values) == len(made["values"])
    assert len({task["id"] for task in made["tasks"]}) == len(made["tasks"])
    written: set[str] = set()
    for task in made["tasks"]:
        assert set(task["reads"]) <= written
        assert len(set(task["reads"])) == len(task["reads"])
        assert task["writes"]
        assert task["time"] >= 0
        written.update(task["writes"])
    assert written == values
    assert all(value["size"] >= 0 for value in made["values"])


def edges(made: dict[str, Any]) -> set[tuple[str, str]]:
    """Pairs of tasks, written value to reader."""
    writer = {value: task["id"] for task in made["tasks"] for value in task["writes"]}
    return {(writer[value], task["id"]) for task in made["tasks"] for value in task["reads"]}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", [2, 3, 17, 120])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, RICH])
def test_random_graphs_are_well_formed_and_reproducible(
    shape: str, nodes: int, training: bool, options: dict[str, float]
) -> None:
    for seed in range(5):
        made = SHAPES[shape](nodes=nodes, training=training, seed=seed, **options)
        check_structure(made)
        assert made == SHAPES[shape](nodes=nodes, training=training, seed=seed, **options)
        plain = [task for task in made["tasks"] if not task["id"].endswith(".alternative")]
        assert len(plain) == (2 * nodes + 1 if training else nodes)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("nodes", "layers"), [(2, 0), (2, 2), (3, 3), (5, 3), (40, 6), (100, 0), (100, 100)])
def test_layered_graphs_are_connected_from_one_source_to_one_sink(order: str, nodes: int, layers: int) -> None:
    made = layered_dag(nodes=nodes, layers=layers, edge_probability=0.0, order=order, seed=9)
    pairs = edges(made)
    names = [task["id"] for task in made["tasks"]]
    assert [name for name in names if not any(v == name for _, v in pairs)] == [names[0]]
    assert [name for name in names if not any(u == name for u, _ in pairs)] == [names[-1]]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("nodes", [2, 3, 5, 40, 300])
@pytest.mark.parametrize("parameters", [{}, {"width": 0.9}, {"width": 0.05}, {"variability": 0, "edge_density": 1}])
def test_local_layered_graphs_are_connected_from_one_source_to_one_sink(
    nodes: int, order: str, parameters: dict[str, float]
) -> None:
    made = local_layered_dag(nodes=nodes, skip_density=0, order=order, seed=4, **parameters)
    pairs = edges(made)
    names = [task["id"] for task in made["tasks"]]
    assert [name for name in names if not any(v == name for _, v in pairs)] == [names[0]]
    assert [name for name in names if not any(u == name for u, _ in pairs)] == [names[-1]]


def test_local_edges_stay_near_and_are_as_many_as_asked_for() -> None:
    # Layers of 20 in equal rows, 31 of them between source and sink, listed layer by layer.
    parameters = {"nodes": 622, "width": 0.39, "variability": 0, "order": "layer", "seed": 1}
    made = local_layered_dag(skip_density=0, **parameters)
    number = {task["id"]: place for place, task in enumerate(made["tasks"])}
    inner = [(number[u] - 1, number[v] - 1) for u, v in edges(made) if number[u] > 0 and number[v] < 621]
    assert all(v // 20 == u // 20 + 1 for u, v in inner)
    assert all(abs(v % 20 - u % 20) <= 4 for u, v in inner)
    # 0.2 * 20 * 20 + 0.8 * 20 between two layers of 20.
    assert len(inner) == 30 * 96
    more = edges(local_layered_dag(skip_density=0.2, **parameters))
    plain = edges(made)
    assert 0.97 * len(plain) / 4 <= len(more) - len(plain) <= len(plain) / 4
    skips = [(number[u] - 1, number[v] - 1) for u, v in more if number[v] - number[u] > 40]
    assert sum(-1 <= v % 20 - u % 20 <= 5 for u, v in skips) == len(skips)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"width": 0}, "width must lie between 0 and 1, both excluded, not 0; the literature has .25 to .5"),
        ({"width": 1.0}, "width must lie between 0 and 1, both excluded"),
        ({"skip_density": 0.95}, "skip_density must be at most 0.9, not 0.95"),
        ({"variability": 2}, "variability must lie between 0 and 1"),
        (
            {"nodes": 100_000, "width": 0.99, "edge_density": 1},
            "at most 5,000,000; lower edge_density, skip_density or width",
        ),
    ],
)
def test_local_layered_graphs_refuse(parameters: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        local_layered_dag(**parameters)


def test_layers_are_the_longest_path() -> None:
    made = layered_dag(nodes=80, layers=9, edge_probability=0.4, seed=2)
    depth: dict[str, int] = {}
    writer = {value: task["id"] for task in made["tasks"] for value in task["writes"]}
    for task in made["tasks"]:
        depth[task["id"]] = 1 + max((depth[writer[value]] for value in task["reads"]), default=0)
    assert max(depth.values()) == 9


def test_probabilities_of_zero_and_one() -> None:
    assert len(edges(random_dag(nodes=20, edge_probability=1))) == 190
    assert not edges(random_dag(nodes=20, edge_probability=0))
    # A chain of 4 layers of one, plus every skip that there can be: one each for the third and fourth.
    assert len(edges(layered_dag(nodes=4, layers=4, skip_probability=0))) == 3
    assert len(edges(layered_dag(nodes=4, layers=4, skip_probability=1))) == 5


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.5, 1.0])
def test_series_parallel_graphs_reduce_to_one_edge(probability: float) -> None:
    made = series_parallel_dag(nodes=60, series_probability=probability, seed=1)
    pairs = list(edges(made))
    while True:
        pairs = list(set(pairs))  # parallel reduction
        inner = {
            v: (u, w)
            for u, v in pairs
            for x, w in pairs
            if x == v and sum(b == v for _, b in pairs) == 1 == sum(a == v for a, _ in pairs)
        }
        if not inner:
            break
        v, (u, w) = next(iter(inner.items()))
        pairs = [pair for pair in pairs if v not in pair] + [(u, w)]
    assert len(pairs) == 1


def test_alternatives_write_the_same_and_are_not_required() -> None:
    made = layered_dag(nodes=100, alternative_probability=1.0, seed=3)
    tasks = {task["id"]: task for task in made["tasks"]}
    alternatives = [task for task in made["tasks"] if task["id"].endswith(".alternative")]
    assert len(alternatives) == 99  # all but the sink
    for alternative in alternatives:
        original = tasks[alternative["id"].removesuffix(".alternative")]
        assert alternative["writes"] == original["writes"]
        assert alternative["time"] >= original["time"]
        assert set(alternative["reads"]) <= set(original["reads"])
        assert alternative["required"] is original["required"] is False


def test_training_backwards_read_inputs_and_gradients() -> None:
    made = random_dag(nodes=3, edge_probability=1.0, training=True, min_size=7, max_size=7)
    reads = {task["id"]: set(task["reads"]) for task in made["tasks"]}
    writes = {task["id"]: task["writes"] for task in made["tasks"]}
    assert reads["loss"] == {"v2"}
    assert reads["b2"] == {"v0", "v1", "g2"}
    assert writes["b2"] == ["g0.2", "g1.2"]
    assert reads["b1"] == {"v0", "g1.2"}
    assert reads["b0"] == {"g0.2", "g0.1"}
    assert {value["size"] for value in made["values"]} == {7}
    times = {task["id"]: task["time"] for task in made["tasks"]}
    assert times["b1"] == 2 * times["t1"]


def test_equal_ends_give_unit_graphs() -> None:
    made = layered_dag(min_time=1, max_time=1, min_size=1, max_size=1)
    assert {task["time"] for task in made["tasks"]} == {1}
    assert {value["size"] for value in made["values"]} == {1}


@pytest.mark.parametrize(
    ("generator", "parameters", "message"),
    [
        (layered_dag, {"nodes": 1}, "nodes must be at least 2, not 1"),
        (layered_dag, {"nodes": 10**6}, "nodes must be at most 100,000, not 1000000"),
        (layered_dag, {"nodes": 10, "layers": 11}, "layers must be at most 10, not 11"),
        (layered_dag, {"nodes": 10, "layers": 2}, "layers 2 leaves no layer for 10 nodes.*use at least 3"),
        (layered_dag, {"nodes": 100_000, "layers": 4}, "pairs of tasks.*use fewer nodes"),
        (layered_dag, {"order": "depth"}, "order must be one of random, layer, not 'depth'"),
        (
            layered_dag,
            {"nodes": 9000, "layers": 4},
            "about .* edges, at most 5,000,000; lower edge_prob.*or raise layers",
        ),
        (random_dag, {"nodes": 9000, "edge_probability": 1}, "about 40,495,500 edges.*lower edge_probability"),
        (random_dag, {"edge_probability": 2}, "edge_probability must lie between 0 and 1, not 2"),
        (random_dag, {"nodes": 20_000}, "nodes must be at most 10,000, not 20000"),
        (series_parallel_dag, {"series_probability": -0.5}, "series_probability must be at least 0, not -0.5"),
        (series_parallel_dag, {"max_size": 2**61}, "lower max_size or nodes"),
        (series_parallel_dag, {"min_time": 2000}, "min_time 2000 is above max_time 1000"),
    ],
)
def test_errors_name_parameter_figure_and_remedy(
    generator: Generator, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        generator(**parameters)
