"""Useless runs."""

import pytest

import remat
from remat.instance.lowering import lower
from remat.plugin import unread_tasks, useful_runs

DOCUMENT = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "tasks": [
        {"id": "a", "time": 1, "size": 1},
        {"id": "b", "time": 1, "reads": ["a"], "size": 1},
        {"id": "g", "time": 1, "reads": ["a"], "size": 1},
        {"id": "n", "time": 1, "reads": ["a"], "size": 1, "required": False},
        {"id": "log", "time": 1, "reads": ["b"], "writes": []},
    ],
    "outputs": ["g"],
}


@pytest.mark.parametrize(
    ("runs", "kept"),
    [
        ("a b g log", "a b g log"),
        ("a b g log a g", "a b log a g"),  # the output is written to its final memory
        ("a b a log g", "a b a log g"),  # the first one is read by b, the second one by g
        ("a a b log g", "a b log g"),
        ("a n b log g", "a b log g"),  # it need not run
        ("a b log b g", "a b log g"),
        ("a b b log a g log", "a b log a g"),  # what must run does so once
        ("a b log a n b g", "a b log a g"),
    ],
)
def test_runs_that_nobody_has_any_use_for_are_left_out(runs, kept):
    instance = remat.load(DOCUMENT)
    graph = lower(instance)
    found = useful_runs(graph, [graph.task(name) for name in runs.split()])
    assert " ".join(graph.tasks[task] for task in found) == kept


def test_tasks_without_readers_are_found():
    graph = lower(remat.load(DOCUMENT))
    assert [graph.tasks[task] for task in unread_tasks(graph).nonzero()[0]] == ["g", "n"]
