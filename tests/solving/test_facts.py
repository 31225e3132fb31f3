from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

import remat
from remat.plugin import registry
from remat.solving.facts import Largest, Need

CHAIN: dict[str, Any] = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "name": "two",
    "input_size": 2,
    "static_memory": 100,
    "stages": [
        {"forward_time": 1, "backward_time": 2, "output_size": 3, "saved_size": 4},
        {"forward_time": 2, "backward_time": 9, "output_size": 2, "saved_size": 1, "backward_workspace": 50},
    ],
}
TREE: dict[str, Any] = {
    "schema": "remat.instance/1",
    "kind": "tree",
    "parent": [-1, 0, 0, 0],
    "output_size": [1, 2, 3, 4],
}


def test_facts_of_a_chain_are_as_by_hand() -> None:
    facts = remat.show(CHAIN)
    assert (facts.kind, facts.name, facts.length) == ("chain", "two", 2)
    assert facts.digest.startswith("sha256:")
    assert (facts.tasks, facts.values) == (7, 8)
    # x 2 3 2, s 4 1, y 2 3 2
    assert facts.total_size == 19
    assert facts.largest_value == Largest("s1", 4)
    assert facts.longest_task == Largest("B2", 9)
    assert facts.static_memory == 100
    # B2 holds x0 x1 x2 s1 s2 y2, writes y1, and works in 50.
    assert facts.no_recompute_peak == 100 + 7 + 5 + 2 + 3 + 50
    assert facts.no_recompute_peak_step == "B2"
    assert facts.no_recompute_time == facts.time_bound == 14
    assert facts.time_bound_cause == "all needed tasks, one after the other"
    assert facts.memory_needs == {"memory": Need(100 + 3 + 2 + 1 + 2 + 3 + 50, "B2")}
    assert facts.fits is True
    assert facts.too_small == ()


def test_agrees_with_keep_all() -> None:
    facts = remat.show(CHAIN)
    result = remat.solve(CHAIN, algorithm="keep-all")
    assert facts.no_recompute_peak == result.peak_memory["memory"]
    assert facts.no_recompute_time == result.makespan


@pytest.mark.parametrize(
    ("budget", "fits", "too_small"), [(167, True, ()), (166, False, ()), (160, False, ("memory",)), (161, False, ())]
)
def test_budgets_fit_or_are_too_small(budget: int, fits: bool, too_small: tuple[str, ...]) -> None:
    facts = remat.show(CHAIN, budget=budget)
    assert (facts.fits, facts.too_small) == (fits, too_small)
    assert facts.machine.memories[0].capacity == budget
    assert facts.no_recompute_peak == 167


def test_every_kind_has_facts() -> None:
    assert remat.show(TREE).length == 4
    assert remat.show({"schema": "remat.instance/1", "kind": "adjoint", "steps": 5}).length == 5
    task = {"id": "t", "time": 1, "writes": []}
    facts = remat.show({"schema": "remat.instance/1", "kind": "dag", "tasks": [task]})
    assert facts.length is None
    assert facts.variants == 0
    assert facts.largest_value is None
    assert facts.memory_needs["memory"].size == 0


def test_variants_are_counted() -> None:
    stage: dict[str, Any] = {"forward_time": 1, "backward_time": 2, "output_size": 3}
    stages = [stage, stage | {"variants": [{}, {"saved_size": 1}], "repeat": 2}, stage | {"variants": [{}]}]
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "stages": stages}
    assert remat.show(document).variants == 1 + 4 + 1
    assert remat.show(document).to_dict()["variants"] == 6
    assert remat.show(document | {"stages": stages[:1]}).variants == 0


def test_several_processors_share_the_time_bound() -> None:
    machine = {
        "memories": [{"name": "memory"}],
        "processors": [{"name": "core", "memory": "memory", "count": 2}],
    }
    facts = remat.show(TREE, machine=machine)
    assert facts.time_bound == 2
    assert "2 processors" in facts.time_bound_cause or "path" in facts.time_bound_cause
    line = {**TREE, "parent": [-1, 0, 1, 2]}
    assert remat.show(line, machine=machine).time_bound_cause == "the longest path through the task graph"
    wide = {**TREE, "parent": [-1, 0, 0, 0], "time": [1, 8, 8, 8]}
    assert remat.show(wide, machine=machine).time_bound_cause == "all needed tasks, shared by 2 processors"


def test_machine_as_path(tmp_path: Any) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"memories": [{"name": "memory", "capacity": "1kB"}]}))
    facts = remat.show(CHAIN, machine=str(path))
    assert facts.machine.memories[0].capacity == 1000
    assert facts.fits is True


def elsewhere(**more: Any) -> dict[str, Any]:
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": [{"id": "v", "size": 3}],
        "inputs": [{"value": "v", "memory": "host"}],
        "tasks": [{"id": "t", "time": 1, "reads": ["v"], "writes": []}],
        "machine": {
            "memories": [{"name": "device"}, {"name": "host"}],
            "processors": [{"name": "gpu", "memory": "device"}],
            "links": [{"source": "host", "target": "device"}],
        },
        **more,
    }


def test_inputs_in_other_memories_have_needs() -> None:
    facts = remat.show(elsewhere())
    assert facts.no_recompute_peak is None
    assert facts.no_recompute_peak_step is None
    assert facts.fits is None
    assert facts.memory_needs["host"] == Need(3, None)
    assert facts.working_memory == "device"


def test_without_the_zoo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", dict)
    facts = remat.show(CHAIN)
    assert facts.no_recompute_peak is None
    assert facts.time_bound == 14


def test_to_dict_is_json() -> None:
    document = remat.show(CHAIN, budget=160).to_dict()
    assert json.loads(json.dumps(document)) == document
    assert document["memory_needs"] == {"memory": {"size": 161, "task": "B2"}}
    assert document["too_small"] == ["memory"]
    assert document["fits_without_recomputation"] is False
    assert document["largest_value"] == {"name": "s1", "size": 4}
    assert document["longest_task"] == {"name": "B2", "time": 9}


def test_facts_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        remat.show(CHAIN).name = "other"  # type: ignore[misc]


def test_bad_input_is_refused() -> None:
    with pytest.raises(remat.OptionError, match="budget"):
        remat.show(CHAIN, budget="8,5GB")
    with pytest.raises(remat.InstanceError):
        remat.show({})
