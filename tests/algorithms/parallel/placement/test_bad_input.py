"""Test invalid streams: errors name the path of a fault, or the minimum memory that would fit."""

import copy

import pytest

import remat
from tests.cli.conftest import run, save  # noqa: F401

STREAM = {
    "schema": "remat.instance/3",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "stream": 2,
    "machine": {
        "memories": [{"name": "host"}, {"name": "a", "capacity": 10}, {"name": "b", "capacity": 8}],
        "processors": [{"name": "pa", "memory": "a"}, {"name": "pb", "memory": "b"}],
        "links": [
            {"source": one, "target": other, "bandwidth": 1}
            for name in ("a", "b")
            for one, other in ((name, "host"), ("host", name))
        ],
    },
    "inputs": [{"value": name, "memory": "any"} for name in ("v", "w")],
    "values": [{"id": "v", "size": 6}, {"id": "w", "size": 5}, {"id": "x", "size": 1}],
    "tasks": [
        {"id": "first", "time": 2, "reads": ["v"], "writes": ["x"]},
        {"id": "then", "time": 3, "reads": ["w", "x"], "writes": []},
    ],
}


def changed(change):
    document = copy.deepcopy(STREAM)
    change(document)
    return document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["machine"]["links"][0].update(bandwidth=0), "machine.links[0].bandwidth"),
        (lambda d: d["machine"]["links"].pop(0), "machine.links: no link leads from memory 'a' to memory 'b'"),
        (lambda d: d["machine"]["links"].pop(3), "machine.links: no link leads from memory 'a' to memory 'b'"),
        (lambda d: d.update(stream=0), "stream"),
        (lambda d: d["inputs"].append("x"), "inputs[2]: 'x' may be freed, and a stream has no end"),
        (lambda d: d.update(outputs=["x"]), "outputs[0]: 'x' is written for each sample"),
        (lambda d: d["tasks"][0].update(parallel={"max": 2}), "tasks[0].parallel: a task of a stream runs on one"),
    ],
)
def test_what_is_wrong_is_named(run, save, change, message):  # noqa: F811
    outcome = run("solve", save(changed(change)))
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def renamed(name):
    """Return the stream with 4,000,000 samples and the input v under another name."""
    document = copy.deepcopy(STREAM) | {"stream": 4_000_000}
    document["inputs"][0]["value"] = document["values"][0]["id"] = name
    document["tasks"][0]["reads"] = [name]
    return document


@pytest.mark.parametrize(
    ("name", "is_taken"), [("x.0", True), ("x.3999999", True), ("x.4000000", False), ("x.01", False)]
)
def test_inputs_are_not_called_like_values_of_samples(name, is_taken):
    if is_taken:
        with pytest.raises(remat.InstanceError, match=f"the input '{name}' is called like a value of a sample"):
            remat.load(renamed(name))
    else:
        remat.load(renamed(name))


def together(document):
    """Let both tasks read both parameters, so every schedule keeps them in one memory."""
    for task in document["tasks"]:
        task["reads"] = [*dict.fromkeys([*task["reads"], "v", "w"])]


def many(document):
    for name in ("v2", "w2"):
        document["values"].append({"id": name, "size": 5})
        document["inputs"].append({"value": name, "memory": "any"})
        document["tasks"].append({"id": f"t{name}", "time": 1, "reads": [name], "writes": []})


@pytest.mark.parametrize(
    "algorithm", ["auto", "tarnawski-dp", "tarnawski-ip", "placement-replicated", "placement-bound"]
)
@pytest.mark.parametrize(
    ("change", "said", "least"),
    [
        # 11 of parameters and 1 of the output alone; 21 of all, and in either memory 1 of the output.
        (together, "must be in one memory and take 12 with their parameters", "at least 12"),
        (lambda d: d["values"][0].update(size=11), "takes 12 with its parameters", "at least 12"),
        (many, "parameters take 21, and the memories hold 18 in all: at least 22 is needed", "at least 14"),
    ],
    ids=["one class", "one layer", "all"],
)
def test_what_cannot_fit_is_named(run, save, algorithm, change, said, least):  # noqa: F811
    outcome = run("solve", save(changed(change)), "--algorithm", algorithm)
    assert outcome.code == 3
    shown = " ".join(outcome.out.split())
    assert "infeasible, proved over all schedules" in shown
    assert said in shown
    assert least in shown


def test_the_least_budget_for_a_time_per_sample(run, save):  # noqa: F811
    """On one device the tasks take 5, on two 3: the second one holds a parameter of 6, and an output that passes."""
    path = save(changed(lambda document: document["machine"]["memories"][2].update(capacity=100)))
    asked = ("solve", path, "--algorithm", "tarnawski-dp")
    said = run(*asked, "--max-makespan", 4).out
    working = remat.load(path).machine.build().memories[0].name
    assert f"the minimum budget of {working} for a time per sample of at most 4" in said
    outcome = run(*asked, "--max-makespan", 2)
    shown = " ".join(outcome.out.split())
    assert outcome.code == 3
    assert "no budget is enough: with any memory, the time per sample is at least 2.5" in shown
    outcome = run(*asked, "--max-overhead", "10%")
    assert (outcome.code, "a stream has no overhead" in outcome.err) == (2, True)
