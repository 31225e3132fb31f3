"""Well-formed graphs are read without the models; whatever they would say is said, and what they make is made."""

import copy
import pickle
import random
from decimal import Decimal

import pytest

import remat
from remat.errors import InstanceError
from remat.instance import DagInstance, digest, wellformed
from remat.instance.dag import Task

ODD = [
    *(None, True, 0, -1, 7, 2**62, 2**62 + 1, 1.5, float("nan"), Decimal("2.5"), Decimal("NaN"), "", "3ms", "8kB", "a"),
    *("é", "\ud800", "x" * 1001, [], ["a"], ["a", "a"], ["nobody"], [""], [3], ("a",), {}, {"module": "m"}, {"max": 2}),
]
KEYS = [*Task.model_fields, "shape", "dtype", "what"]


def drawn(draw):
    tasks = []
    made = ["w"]
    for name in "abcdef"[: draw.randrange(1, 7)]:
        task = {"id": name, "time": draw.choice([1, Decimal("0.5"), "2ms"])}
        if draw.random() < 0.7:
            task["reads"] = draw.sample(made, min(len(made), draw.randrange(3)))
        if draw.random() < 0.6:
            task["size"] = draw.randrange(9)
            made.append(name)
        else:
            task["writes"] = ["v"] if draw.random() < 0.5 else []
            made += [] if "v" in made else task["writes"]
        rare = {"workspace": 3, "once": True, "required": False, "phase": "loss", "origin": {"module": "m"}}
        task |= {key: value for key, value in rare.items() if draw.random() < 0.15}
        tasks.append(task)
    if draw.random() < 0.3:
        draw.shuffle(tasks)
    values = [{"id": "w", "size": 2, **({"dtype": "f"} if draw.random() < 0.2 else {})}, {"id": "v", "size": 1}]
    document = {"schema": "remat.instance/3", "kind": "dag", "values": values, "tasks": tasks, "inputs": ["w"]}
    document["outputs"] = [draw.choice(made)]
    if draw.random() < 0.5:
        entry = draw.choice(tasks + values)
        entry[draw.choice(KEYS)] = draw.choice(ODD)
    if draw.random() < 0.1:
        document[draw.choice(["tasks", "values", "inputs", "pinned_inputs"])] = draw.choice(ODD)
    if draw.random() < 0.05:
        tasks[draw.randrange(len(tasks))] = draw.choice(ODD)
    return document


def outcome(document):
    try:
        return remat.load(document)
    except InstanceError as error:
        return str(error), error.more


def by_the_models(monkeypatch):
    monkeypatch.setattr(wellformed, "LARGEST_COUNT", 0)
    monkeypatch.setattr(DagInstance, "_plainly_sound", lambda self: False)


@pytest.mark.parametrize("seed", range(3))
def test_as_the_models(monkeypatch, seed):
    draw = random.Random(seed)
    documents = [drawn(draw) for _ in range(400)]
    before = copy.deepcopy(documents)
    found = [outcome(document) for document in documents]
    assert repr(documents) == repr(before)
    by_the_models(monkeypatch)
    sound = 0
    for document, quick in zip(documents, found, strict=True):
        plain = outcome(document)
        assert quick == plain, document
        if isinstance(plain, DagInstance):
            sound += 1
            assert isinstance(quick, DagInstance)
            assert digest(quick) == digest(plain)
            assert quick.model_dump_json() == plain.model_dump_json()
            assert [task.model_fields_set for task in quick.tasks] == [task.model_fields_set for task in plain.tasks]
            assert hash(quick.tasks[0]) == hash(plain.tasks[0])
            assert pickle.loads(pickle.dumps(quick)) == plain
    assert 50 < sound < 350


def test_usual_tasks_do_not_go_through_the_models(monkeypatch):
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": [{"id": "v", "size": 1}],
        "tasks": [
            {"id": "a", "time": Decimal("0.5"), "writes": ["v"]},
            {"id": "b", "time": 1, "reads": ["v"], "size": 1},
        ],
    }
    monkeypatch.setattr(DagInstance, "_check_references", None)
    monkeypatch.setattr(Task, "model_validate", None)
    assert remat.load(document).tasks[1].reads == ("v",)
