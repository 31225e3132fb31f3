"""The least R for a given S, the measured peak, and the split into forward and backward."""

import itertools

import numpy as np
import pytest

import remat
from remat.plugin.emit import run_in_order
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.literature.retention import stages_of
from remat_algorithms.dag.literature.retention_phases import training_of
from tests.algorithms.dag.graphs import document, layered, seeded, training


def stages_for(instance):
    return stages_of(make_problem(remat.load(instance)), "test")


def least_time(stages, held):
    """Return the minimum time over all R of Checkmate; values not held on entry are lost."""
    count = len(stages)
    pairs = [(t, i) for t in range(count) for i in range(t)]
    best = None
    for bits in itertools.product((False, True), repeat=len(pairs)):
        extra = {pair for pair, chosen in zip(pairs, bits, strict=True) if chosen}
        resident, time, valid = set(), 0, True
        for t in range(count):
            resident = {value for value in resident if held[t, value]}
            for i in (*(i for i in range(t) if (t, i) in extra), t):
                valid = valid and set(stages.reads[i]) <= resident
                resident |= set(stages.writes[i])
                time += stages.time[i]
        if valid and set(stages.ends) <= resident and (best is None or time < best):
            best = time
    return best


@pytest.mark.parametrize("seed", range(25))
def test_runs_are_the_least_for_what_is_held(seed):
    rng = seeded(seed)
    instance = layered(rng, rng.randint(1, 5))
    stages = stages_for(instance | {"outputs": [rng.choice(instance["tasks"])["id"]]})
    held = np.array([[rng.random() < 0.5 for _ in stages.maker] for _ in range(len(stages) + 1)])
    runs = stages.runs(held)
    assert stages.replay(runs).time == least_time(stages, held)


@pytest.mark.parametrize("seed", range(25))
def test_replay_measures_what_the_verifier_does(seed):
    rng = seeded(seed)
    instance = layered(rng, 9)
    for task in instance["tasks"]:
        task |= {"workspace": rng.randint(0, 9), "in_place": rng.random() < 0.3}
    problem = make_problem(remat.load(instance | {"static_memory": 7}))
    stages = stages_of(problem, "test")
    held = np.array([[rng.random() < 0.6 for _ in stages.maker] for _ in range(len(stages) + 1)])
    runs = stages.runs(held)
    replay = stages.replay(runs)
    steps = run_in_order(problem.graph, problem.machine, runs).drop.to_lists()
    values = [problem.graph.values[v] for v in range(len(problem.graph.values))]
    listed = [
        {"run": problem.graph.tasks[task], "drop": [values[v] for v in drop]}
        for task, drop in zip(runs, steps, strict=True)
    ]
    report = remat.verify(instance | {"static_memory": 7}, {"schema": "remat.schedule/1", "steps": listed})
    assert report.ok, report.violations
    assert (replay.peak, replay.time) == (report.peak_memory["memory"], report.makespan)


def test_optional_forwards_run_only_for_what_is_wanted():
    """On a chain the plain forward stands in for the saving one where nothing saved is held."""
    chain = {
        "schema": "remat.instance/1",
        "kind": "chain",
        "input_size": 1,
        "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 2, "saved_size": 9, "repeat": 4}],
    }
    problem = make_problem(remat.load(chain))
    found = training_of(problem, "test")
    assert (found.forward, found.is_linear, found.lean) == (4, True, True)
    assert found.weight == [2] * 4
    names = [problem.graph.tasks[task] for task in found.stages.runs(found.segments([1], [0, 0, 1, 1], 1))]
    assert names == ["F1", "F2", "Fe3", "Fe4", "loss", "B4", "B3", "Fe1", "Fe2", "B2", "B1"]


def test_phases_split_the_graph():
    instance = training(seeded(0), 5)
    # A forward task listed behind the loss is taken along.
    tasks = instance["tasks"]
    moved = document([*tasks[:4], tasks[5] | {"reads": ["f3"]}, tasks[4], *tasks[6:]], outputs=["b0"])
    found = training_of(make_problem(remat.load(moved)), "test")
    names = [found.stages.graph.tasks[task] for task in found.stages.tasks]
    assert found.forward == 5
    assert names[:5] == ["f0", "f1", "f2", "f3", "f4"]


def test_without_phases_the_cut_is_where_keep_all_peaks():
    tasks = [
        {"id": "a", "time": 1, "size": 4},
        {"id": "b", "time": 1, "size": 5, "reads": ["a"]},
        {"id": "c", "time": 1, "size": 6, "reads": ["b"]},
        {"id": "d", "time": 1, "size": 1, "reads": ["a", "c"]},
    ]
    found = training_of(make_problem(remat.load(document(tasks))), "test")
    assert found.forward == 2  # a and b are held when c comes: 15


def test_versions_are_never_made_again():
    """The schedule keeps values that a later task overwrites, and values computed from the old version."""
    tasks = [
        {"id": "a", "time": 1, "writes": ["x"]},
        {"id": "old", "time": 1, "reads": ["x"], "size": 2},
        {"id": "update", "time": 1, "reads": ["x"], "writes": ["x"]},
        {"id": "new", "time": 1, "reads": ["x"], "size": 2},
        {"id": "end", "time": 1, "reads": ["old", "new"], "size": 1},
    ]
    stages = stages_for(document(tasks, values=[{"id": "x", "size": 3}]))
    fixed = {stages.graph.values[value] for value in np.flatnonzero(stages.fixed).tolist()}
    assert fixed == {"x", "old"}
    assert stages.runs(stages.nothing_held()) == [0, 1, 2, 3, 3, 4]


def test_large_graphs_are_refused():
    wide = document([{"id": f"t{i}", "time": 1, "size": 1} for i in range(4001)])
    with pytest.raises(remat.OptionError, match="up to 4000 tasks"):
        remat.solve(wide, algorithm="dtr")
