"""Where alternatives stand in the order: an unused one changes nothing, and a listed one keeps its place."""

import pytest

import remat

FRONTIER = "frontier-advancing schedules of the reference order"


def task(name, time, reads, writes, **more):
    return {"id": name, "time": time, "reads": reads, "writes": writes, **more}


def graph(tasks, sizes, outputs):
    values = [{"id": name, "size": size} for name, size in sizes.items()]
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values, "outputs": outputs}


@pytest.mark.parametrize("algorithm", ["checkmate", "moccasin", "dag-auto"])
@pytest.mark.parametrize("offered", [False, True])
def test_an_unused_alternative_changes_nothing(algorithm, offered):
    # Behind t2, t0 and then t1x make v1a again: t0x, offered early, does not draw t1x before t0.
    tasks = [
        task("t0", 5, [], ["v0a"]),
        *([task("t0x", 9, [], ["v0a"], required=False)] if offered else []),
        task("t1", 3, ["v0a"], ["v1a", "v1b"], once=True),
        task("t1x", 2, ["v0a"], ["v1a"], required=False),
        task("t2", 0, ["v1b"], ["v2a", "v2b"], workspace=2),
    ]
    document = graph(tasks, {"v0a": 3, "v1a": 5, "v1b": 0, "v2a": 3, "v2b": 5}, ["v2a", "v1a"])
    result = remat.solve(document, algorithm=algorithm, budget=11)
    assert result.makespan == 5 + 3 + 0 + 5 + 2
    assert result.optimal_within is not None


@pytest.mark.parametrize("algorithm", ["checkmate", "moccasin", "dag-auto"])
def test_a_listed_alternative_keeps_its_place(algorithm):
    # At the end t0 needs its workspace before t2x makes the other output, though t2x could be the first of all runs.
    tasks = [
        task("t0", 9, [], ["v0a"], workspace=1),
        task("t1", 5, ["v0a"], ["v1a"], in_place=True),
        task("t2", 6, ["v1a", "v0a"], ["v2a"], required=False),
        task("t2x", 0, [], ["v2a"], required=False),
        task("t3", 1, ["v2a"], ["v3a"]),
        task("t4", 1, ["v2a"], ["v4a"], workspace=1, recomputable=False),
    ]
    document = graph(tasks, {"v0a": 3, "v1a": 6, "v2a": 5, "v3a": 1, "v4a": 0}, ["v0a", "v2a"])
    result = remat.solve(document, algorithm=algorithm, budget=8)
    assert result.makespan == 9 + 5 + 0 + 1 + 1 + 9 + 0
    if algorithm != "moccasin":
        assert result.optimal_within == FRONTIER
