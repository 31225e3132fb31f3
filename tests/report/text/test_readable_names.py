"""Test that readable output shows the names of stages next to tasks and values."""

import json

import pytest

import remat
from remat.report.page.data import pack
from remat.report.text.actions import actions
from remat.report.text.readable_names import shown_step, shown_value
from remat.report.text.schedule_view import schedule_view, to_dict
from remat.report.text.summary import summary
from remat.report.trace import write_trace
from remat.solving.verifying import examine

NAMES = ("embedding", "attention", "head")
STAGE = {"forward_time": 2, "backward_time": 3, "output_size": 4, "saved_size": 6}
CHAIN = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "name": "named",
    "units": {"time": "unit", "memory": "unit"},
    "input_size": 4,
    "stages": [STAGE | {"name": name} for name in NAMES],
    "loss": {"time": 1},
    "machine": {
        "memories": [{"name": "device", "capacity": 26}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [{"source": "device", "target": "host"}, {"source": "host", "target": "device"}],
    },
}


@pytest.fixture(scope="module")
def result():
    return remat.solve(CHAIN, algorithm="pofo", budget=26)


def test_values_are_of_the_stage_that_makes_them(result):
    graph = result.graph
    assert [shown_value(graph, graph.value(name)) for name in ("x0", "x1", "s2", "y2")] == [
        "x0 of embedding",  # which first reads it
        "x1 of embedding",
        "s2 of attention",
        "y2 of head",
    ]
    copies = [k for k in range(len(result.columns)) if result.columns.kind[k] == 1]
    assert copies
    assert " of " in shown_step(graph, result.machine, result.columns, copies[0])


def test_tables_and_answers(result):
    assert any(f" of {name}" in summary(result) for name in NAMES)
    examined = examine(CHAIN, result.to_dict())
    assert any(f" of {name} " in schedule_view(examined) for name in NAMES)
    assert any(entry.get("module") in NAMES for entry in to_dict(examined)["memories"]["device"]["residents"])
    infeasible = remat.solve(CHAIN, algorithm="pofo", budget=3)
    assert infeasible.report is None
    assert any(f" of {name}" in summary(infeasible) for name in NAMES)


def test_actions_name_the_stages(result):
    lines = list(actions(remat.solve(CHAIN, algorithm="rotor", budget=26)))
    assert "backward 3 (head)" in lines
    assert any(line.startswith("save 3 (head)") for line in lines)
    assert any(line in ("advance 0 -> 2 (embedding to attention)", "advance 0 -> 1 (embedding)") for line in lines)


def test_traces_name_the_stages(result, tmp_path):
    write_trace(result, tmp_path / "trace.json")
    names = {event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert "B3 of head" in names
    assert any(" of " in name and "->" in name for name in names)


def test_pages_name_the_modules(result):
    head, _ = pack(result)
    assert head["modules"] == 4  # and the loss, which is of none
    assert [entry["name"] for entry in head["columns"] if "module" in entry["name"]] == [
        "modules",
        "module",
        "value module",
    ]


def test_facts_name_the_stages():
    from remat.report.text.facts import facts_table

    text = facts_table(remat.show(CHAIN))
    assert "s1 of embedding: 6\n" in text
