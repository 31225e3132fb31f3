"""Test the phase of each step."""

import numpy as np
import pytest

import remat
from remat.report.views.phases import Phase, step_phases
from remat.report.views.resources import occupied
from tests.algorithms.offload.trained import chain, stage
from tests.verifier.judges import Case


def phases(case, steps, start=None):
    columns = case.columns(steps)
    at = np.arange(len(steps)) if start is None else np.array(start)
    return [Phase(phase).label for phase in step_phases(case.graph, columns, at)]


def runs(*tasks):
    return [{"run": task} for task in tasks]


def dag(tasks, **more):
    values = {name for task in tasks for name in [*task.get("reads", []), *task["writes"]]}
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": [{"time": 1} | task for task in tasks]}
    return Case(document | {"values": [{"id": name, "size": 1} for name in sorted(values)]} | more)


def test_exchanges_between_ranks_occupy_their_link_and_no_processor():
    """Pictures and traces show the resources that the verifier finds busy."""
    network = {"source": "device", "target": "device", "bandwidth": 2, "channel": "network"}
    document = chain(stage(), stage()) | {"schema": "remat.instance/3", "optimizer_memory": "device"}
    document["machine"] = document["machine"] | {"links": [*document["machine"]["links"], network]}
    result = remat.solve(document | {"sharding": {"data": 2, "zero": 3}}, algorithm="weight-offload")
    steps, resources = occupied(result.graph, result.machine, result.columns)
    took = result.report.end - result.report.start
    names = result.machine.resources
    for index, name in enumerate(names):
        assert took[steps[resources == index]].sum() == pytest.approx(result.report.busy[name])
    found = step_phases(result.graph, result.columns, result.report.start)
    labels = dict(zip(result.timeline()["name"], found.tolist(), strict=True))
    assert {Phase(labels[name]) for name in labels if name[:1] in ("P", "A")} == {Phase.EXCHANGE}
    again = [name for name, phase in zip(result.timeline()["name"], found, strict=True) if phase == Phase.RECOMPUTATION]
    assert not [name for name in again if name.startswith("P")]
    assert {names[k] for k in resources[found[steps] == Phase.EXCHANGE]} == {"network"}


def test_phases_of_chains_follow_from_names():
    stage = {"forward_time": 1, "backward_time": 1, "output_size": 1}
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "stages": [stage] * 2}
    found = phases(Case(document), runs("F1", "Fe2", "loss", "B2", "Fe1", "B1"))
    assert found == ["forward", "saving forward", "loss", "backward", "recomputation", "backward"]


def test_chains_with_variants():
    stage = {"forward_time": 1, "backward_time": 1, "output_size": 1}
    stages = [stage | {"variants": [{}, {"saved_size": 1}]}, stage]
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "stages": stages}
    found = phases(Case(document), runs("F1", "Fe2", "loss", "B2", "Fe1.2", "B1.2"))
    assert found == ["forward", "saving forward", "loss", "backward", "recomputation", "backward"]


def test_recomputation_follows_time_not_the_list():
    case = dag([{"id": "a", "writes": ["u"], "phase": "forward"}])
    assert phases(case, runs("a", "a"), [5, 0]) == ["recomputation", "forward"]


def test_phases_of_task_graphs():
    case = dag(
        [
            {"id": "a", "writes": ["u"], "phase": "forward"},
            {"id": "b", "writes": ["u"], "phase": "Backward"},
            {"id": "c", "reads": ["u"], "writes": [], "phase": "optimizer"},
        ]
    )
    assert phases(case, runs("a", "b", "c", "c")) == ["forward", "recomputation", "task", "recomputation"]


def test_an_update_is_no_recomputation():
    case = dag([{"id": "a", "writes": ["u"]}, {"id": "add", "reads": ["u"], "writes": ["u"]}])
    assert phases(case, runs("a", "add")) == ["task", "task"]


def test_copies_and_drops():
    machine = {
        "memories": [{"name": "m"}, {"name": "n"}],
        "processors": [{"name": "p", "memory": "m"}],
        "links": [{"source": "m", "target": "n"}],
    }
    case = dag([{"id": "a", "writes": ["u"]}], machine=machine)
    steps = [{"run": "a"}, {"copy": "u", "from": "m", "to": "n"}, {"drop": ["u"], "memory": "m"}]
    assert phases(case, steps) == ["task", "copy", "none"]


def test_trees_have_tasks():
    document = {"schema": "remat.instance/1", "kind": "tree", "parent": [1, -1], "output_size": [1, 1]}
    assert phases(Case(document), runs("T0", "T1")) == ["task", "task"]
