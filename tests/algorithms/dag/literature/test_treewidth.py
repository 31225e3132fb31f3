"""`treewidth`: its decomposition, and schedules within the bounds that its recursion promises."""

from math import floor, log2

import networkx as nx
import pytest

import remat
from remat.plugin.context import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.literature.retention import stages_of
from remat_algorithms.dag.literature.treewidth import Pebbling, TooLong, decompose
from tests.algorithms.dag.graphs import document, seeded


def unit_graph(rng, count, *, reach, most_reads):
    """Unit sizes and times; tasks read from the last few, so that the treewidth stays small."""
    tasks = []
    for i in range(count):
        near = range(max(0, i - reach), i)
        reads = sorted(rng.sample(near, min(len(near), rng.randint(1, most_reads))))
        tasks.append({"id": f"t{i}", "time": 1, "size": 1, "reads": [f"t{j}" for j in reads]})
    return document(tasks)


def stages_for(instance):
    return stages_of(make_problem(remat.load(instance)), "test")


@pytest.mark.parametrize("heuristic", ["min-degree", "min-fill-in"])
@pytest.mark.parametrize("seed", range(12))
def test_bags_cover_all_edges_and_form_a_tree(seed, heuristic):
    rng = seeded(seed)
    stages = stages_for(unit_graph(rng, rng.randint(1, 40), reach=6, most_reads=3))
    count, found = len(stages), decompose(stages.before, heuristic)
    edges = [(other, stage) for stage, earlier in enumerate(stages.before) for other in earlier]
    assert all(any({a, b} <= bag for bag in found.bags) for a, b in edges)
    tree = nx.Graph()
    tree.add_nodes_from(range(len(found.bags)))
    tree.add_edges_from((a, b) for a, beside in enumerate(found.neighbours) for b in beside)
    assert nx.is_forest(tree)
    for stage in range(count):
        assert nx.is_connected(tree.subgraph([k for k, bag in enumerate(found.bags) if stage in bag]))
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(count))
    for part in nx.connected_components(graph):
        separator = found.separator(frozenset(part))
        assert 0 < len(separator) <= found.width + 1
        rest = graph.subgraph(part - set(separator))
        assert all(2 * len(component) <= len(part) for component in nx.connected_components(rest))


@pytest.mark.parametrize("seed", range(25))
def test_schedules_are_within_the_bounds(seed):
    rng = seeded(seed)
    stages = stages_for(unit_graph(rng, rng.randint(1, 60), reach=rng.randint(1, 5), most_reads=rng.randint(1, 3)))
    count = len(stages)
    decomposition = decompose(stages.before, "min-degree")
    degree = max(map(len, stages.before))
    levels = floor(log2(count)) + 1
    pebbling = Pebbling(stages.before, [True] * count, decomposition, 1, 10**6, Context())
    runs = pebbling.perform_all()
    assert set(runs) == set(range(count))
    kept = set()
    for stage in runs:  # valid: with the frees of `replay`, every read is there
        assert set(stages.before[stage]) <= kept
        kept.add(stage)
    replay = stages.replay([stages.tasks[stage] for stage in runs])
    assert replay.peak <= (decomposition.width + 1 + degree) * levels + 1
    assert len(runs) <= count * (degree * (decomposition.width + 1) + 2) ** levels


def test_five_tasks_by_hand():
    """A row t0 to t3, and t4, which reads t0 and t2. The bag {0, 1, 4} leaves {2, 3}, two of five.

    perform(all): t0 and t1 run and stay. t4 reads t2, which is obtained from {2, 3} (t2 runs); t4 runs, and t2 is
    forgotten. perform({2, 3}) makes its bag: t2 runs again, and t3.
    """
    reads = [[], [0], [1], [2], [0, 2]]
    tasks = [{"id": f"t{i}", "time": 1, "size": 1, "reads": [f"t{j}" for j in row]} for i, row in enumerate(reads)]
    stages = stages_for(document(tasks))
    found = decompose(stages.before, "min-degree")
    assert sorted(map(sorted, found.bags)) == [[0, 1, 4], [1, 2, 4], [2, 3]]
    assert found.separator(frozenset(range(5))) == (0, 1, 4)
    assert Pebbling(stages.before, [True] * 5, found, 1, 100, Context()).perform_all() == [0, 1, 2, 4, 2, 3]


def test_a_long_chain_needs_logarithmic_memory():
    tasks = [{"id": f"t{i}", "time": 1, "size": 1, "reads": [f"t{i - 1}"] if i else []} for i in range(200)]
    # The last task reads the first value, too: kept all the time, it is one of two.
    tasks[-1]["reads"] = ["t0", "t198"]
    stages = stages_for(document(tasks))
    runs = Pebbling(
        stages.before, [True] * 200, decompose(stages.before, "min-degree"), 1, 10**6, Context()
    ).perform_all()
    assert stages.replay([stages.tasks[stage] for stage in runs]).peak <= 5 * 8 + 1


def test_length_is_bounded():
    stages = stages_for(unit_graph(seeded(3), 40, reach=5, most_reads=3))
    decomposition = decompose(stages.before, "min-degree")
    with pytest.raises(TooLong):
        Pebbling(stages.before, [True] * 40, decomposition, 1, 45, Context()).perform_all()
    with pytest.raises(TooLong):
        Pebbling(stages.before, [True] * 40, decomposition, 1, 10**6, Context(interrupted=True)).perform_all()


def test_what_may_not_run_again_runs_once():
    rng = seeded(5)
    instance = unit_graph(rng, 30, reach=4, most_reads=2)
    for entry in instance["tasks"][::3]:
        entry["recomputable"] = False
    result = remat.solve(instance, algorithm="treewidth", budget=9)
    assert result.report is None or result.report.ok


def test_several_writers_are_refused():
    tasks = [{"id": "a", "time": 1, "writes": ["x"]}, {"id": "b", "time": 1, "reads": ["x"], "writes": ["x"]}]
    with pytest.raises(remat.OptionError, match="'x' is written more than once"):
        remat.solve(document(tasks, values=[{"id": "x", "size": 1}]), algorithm="treewidth")
