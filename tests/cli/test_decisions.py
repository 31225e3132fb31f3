"""Test `remat decisions`: a schedule's decisions as a table, JSON and CSV."""

import csv
import io
import itertools
import json

import pytest

import remat
from remat.instance import save_instance

CHAIN = remat.chain(
    forward_time=[3, 1, 2], backward_time=2, output_size=[40, 30, 20], input_size=20, names=["a", "b", "=c"]
)


@pytest.fixture
def files(tmp_path):
    save_instance(CHAIN, tmp_path / "net.json")
    result = remat.solve(CHAIN, algorithm="keep-all")
    result.save(tmp_path / "plan.json")
    return result, [str(tmp_path / "plan.json"), "--of", str(tmp_path / "net.json")]


def test_all_formats_list_every_value(run, files):
    result, arguments = files
    table = run("decisions", *arguments)
    assert table.code == 0
    assert [line.split()[0] for line in table.out.splitlines()[1 : 1 + len(result.decisions)]] == list(
        result.graph.values
    )
    rows = json.loads(run("decisions", *arguments, "--format", "json").out)
    assert rows == json.loads(json.dumps(result.decisions.to_dicts()))
    listed = list(csv.DictReader(io.StringIO(run("decisions", *arguments, "--format", "csv").out)))
    assert [row["value"] for row in listed] == list(result.graph.values)
    assert "'=c" in {row["module"] for row in listed}


def test_stages_in_all_formats(run, files):
    result, arguments = files
    table = run("decisions", *arguments, "--by", "stage").out.splitlines()
    assert table[0].split() == [
        "stage",
        "of",
        "device",
        "decision",
        "runs",
        "start",
        "end",
    ]  # columns without an entry are left out
    assert [line.split()[:2] for line in table[1:4]] == [["1", "a"], ["2", "b"], ["3", "=c"]]  # as in F1, F2, F3
    assert table[-1] == "kept: 3"
    rows = json.loads(run("decisions", *arguments, "--by", "stage", "--format", "json").out)
    assert rows == result.stage_decisions.to_dicts()
    listed = list(csv.DictReader(io.StringIO(run("decisions", *arguments, "--by", "stage", "--format", "csv").out)))
    assert [(row["stage"], row["layers"]) for row in listed] == [("0", "0"), ("1", "1"), ("2", "2")]


def test_copies_are_listed_with_their_times(run, tmp_path):
    chain = remat.chain(
        forward_time=[3, 1, 2, 4],
        backward_time=2,
        output_size=[40, 30, 20, 10],
        saved_size=5,
        input_size=20,
        machine=remat.device(150, link=10),
    )
    result = remat.solve(chain, algorithm="offload-greedy")
    save_instance(chain, tmp_path / "net.json")
    result.save(tmp_path / "plan.json")
    lines = run("decisions", str(tmp_path / "plan.json"), "--of", str(tmp_path / "net.json")).out.splitlines()
    columns = [lines[0].index(heading) for heading in ("moved out", "waits in", "moved back", "read by")]
    line = next(line for line in lines if line.startswith("s1 "))
    cells = [line[start:end].strip() for start, end in itertools.pairwise(columns)]
    assert cells == ["3 s to 3.5 s", "host 3 s to 14.5 s", "14 s to 14.5 s"]
    told = result.decisions["s1"].to_dict()["transfers"]
    assert [(move["source"], move["start"], move["end"]) for move in told] == [("device", 3, 3.5), ("host", 14, 14.5)]
    assert "recompute time" not in lines[0]  # nothing is recomputed


def test_a_tree_has_no_stages(run, tmp_path):
    save_instance(remat.tree([-1, 0, 0], output_size=1), tmp_path / "tree.json")
    remat.solve(remat.load(tmp_path / "tree.json"), algorithm="liu").save(tmp_path / "plan.json")
    out = run("decisions", str(tmp_path / "plan.json"), "--of", str(tmp_path / "tree.json"), "--by", "stage").out
    assert out == "a tree has no stages: list its values\n"


def test_values_with_a_home_elsewhere_are_not_called_offloaded(run, tmp_path):
    """`w` comes from the host, `c` goes there, and `a` waits there by choice."""
    instance = {
        "schema": "remat.instance/2",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "machine": {
            "memories": [{"name": "device", "capacity": 100}, {"name": "host"}],
            "processors": [{"name": "gpu", "memory": "device"}],
            "links": [
                {"source": "device", "target": "host", "bandwidth": 10},
                {"source": "host", "target": "device", "bandwidth": 10},
            ],
        },
        "values": [{"id": "w", "size": 40}, {"id": "a", "size": 30}, {"id": "b", "size": 70}, {"id": "c", "size": 10}],
        "inputs": [{"value": "w", "memory": "host"}],
        "outputs": [{"value": "c", "memory": "host"}],
        "tasks": [
            {"id": "A", "time": 5, "writes": ["a"]},
            {"id": "B", "time": 5, "writes": ["b"]},
            {"id": "C", "time": 5, "reads": ["b"], "writes": []},
            {"id": "D", "time": 5, "reads": ["a", "w"], "writes": ["c"]},
        ],
    }
    steps = [
        {"run": "A"},
        {"copy": "a", "from": "device", "to": "host", "drop": True},
        {"run": "B"},
        {"run": "C", "drop": ["b"]},
        {"copy": "a", "from": "host", "to": "device", "drop": True},
        {"copy": "w", "from": "host", "to": "device", "drop": True},
        {"run": "D", "drop": ["a", "w"]},
        {"copy": "c", "from": "device", "to": "host", "drop": True},
    ]
    problem, plan = tmp_path / "instance.json", tmp_path / "plan.json"
    problem.write_text(json.dumps(instance))
    plan.write_text(json.dumps({"schema": "remat.schedule/1", "steps": steps}))
    lines = run("decisions", plan, "--of", problem).out.splitlines()
    at = lines[0].index("decision")
    shown = {line.split()[0]: line[at:].partition("  ")[0] for line in lines[1:-2]}
    assert shown == {"w": "home in host", "a": "offloaded", "b": "kept", "c": "home in host"}
    assert lines[-1] == "kept: 1, offloaded: 1, home in host: 2"
