"""Test the column parser: from text or objects, it gives the models' graphs and errors."""

import copy
import dataclasses
import io
import json
import pickle
import random
from decimal import Decimal

import numpy as np
import pytest

import remat
from remat.errors import InstanceError
from remat.graph.names import Names
from remat.graph.taskgraph import Ragged, TaskEnergy
from remat.instance import DagInstance, column_parser, digest, instance_document, lazy_text, loading
from remat.instance.dag import Task
from remat.instance.lowering import lower

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


def written(document):
    """Return the JSON text of a document, or None if JSON cannot express it."""
    try:
        text = json.dumps(document, default=float)
    except (ValueError, TypeError, OverflowError):
        return None
    return None if "NaN" in text else text


def by_the_models(monkeypatch):
    monkeypatch.setattr(loading, "plainly", lambda model, document: None)
    monkeypatch.setattr(lazy_text, "QUICK", 2**40)


@pytest.fixture
def from_the_first_character_on(monkeypatch):
    monkeypatch.setattr(lazy_text, "QUICK", 0)


def assert_same(quick, plain):
    """Assert that two instances are equal in all public properties."""
    assert isinstance(quick, DagInstance)
    assert quick == plain
    assert plain == quick
    assert digest(quick) == digest(plain)
    assert quick.model_dump_json() == plain.model_dump_json()
    for one, other in ((quick.tasks, plain.tasks), (quick.values, plain.values)):
        assert [entry.model_fields_set for entry in one] == [entry.model_fields_set for entry in other]
        assert [repr(entry) for entry in one] == [repr(entry) for entry in other]
        assert (len(one), one[:2], one[-1:], hash(one)) == (len(other), other[:2], other[-1:], hash(other))
    copied = pickle.loads(pickle.dumps(quick))
    assert copied == plain
    assert instance_document(copied) == instance_document(plain)
    assert same_graphs(lower(quick), lower(plain))


def same_graphs(one, other):
    """Whether two task graphs are one, types included."""

    def shown(value):
        if isinstance(value, np.ndarray):
            return str(value.dtype), value.tolist()
        if isinstance(value, Ragged):
            return value.to_lists()
        if isinstance(value, TaskEnergy):
            return value.types, shown(value.of_type)
        return list(value) if isinstance(value, Names) else value

    return all(
        shown(getattr(one, field.name)) == shown(getattr(other, field.name)) for field in dataclasses.fields(one)
    )


@pytest.mark.usefixtures("from_the_first_character_on")
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 23))])
def test_as_the_models(monkeypatch, seed):
    draw = random.Random(seed)
    documents = [drawn(draw) for _ in range(300)]
    before = copy.deepcopy(documents)
    found = []
    for document in documents:
        monkeypatch.setattr(lazy_text, "PART", draw.choice((1, 60, 10_000)))
        monkeypatch.setattr(column_parser, "TOGETHER", draw.choice((1, 3, 10_000)))
        found.append((document, outcome(document)))
        if (text := written(document)) is not None:
            found.append((json.loads(text, parse_float=Decimal), outcome(io.BytesIO(text.encode()))))
    assert repr(documents) == repr(before)
    by_the_models(monkeypatch)
    sound = 0
    for document, quick in found:
        plain = outcome(document)
        if isinstance(plain, DagInstance):
            assert_same(quick, plain)
            sound += 1
        else:
            assert quick == plain, document
    assert 80 < sound < 500
    assert len(found) > 500


@pytest.mark.usefixtures("from_the_first_character_on")
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_spoilt_texts_get_the_answer_of_the_models(monkeypatch, seed):
    draw = random.Random(f"spoilt {seed}")
    letters = '{}[]:," \\\n01.eE-tn\x01\x7fé'
    cases = []
    for _ in range(250):
        text = json.dumps(drawn(draw), default=str, indent=draw.choice((None, 1)))
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(len(text))
            put = draw.choice(("", draw.choice(letters), text[place : place + 9]))
            text = text[:place] + put + text[place + draw.randrange(2) :]
        monkeypatch.setattr(lazy_text, "PART", draw.choice((1, 60, 10_000)))
        cases.append((text, outcome(io.BytesIO(text.encode()))))
    by_the_models(monkeypatch)
    for text, quick in cases:
        plain = outcome(io.BytesIO(text.encode()))
        if isinstance(plain, DagInstance):
            assert_same(quick, plain)
        else:
            assert quick == plain, text


DOCUMENT = {
    "schema": "remat.instance/3",
    "kind": "dag",
    "values": [{"id": "v", "size": 1}, {"id": "i", "size": "2kB", "shape": [2, 3], "dtype": "f:32"}],
    "tasks": [
        {"id": "a", "time": Decimal("0.5"), "reads": ["i"], "writes": ["v"], "origin": {"module": "m", "op": "o::p"}},
        {"id": "b", "time": 1, "reads": ["v"], "size": 1, "phase": "backward", "workspace": 3, "in_place": True},
        {"id": "c", "time": "3ms", "reads": ["b"], "writes": [], "parallel": {"max": 2}},
        {"id": "d", "time": 2, "writes": None, "size": 7, "once": True},
    ],
    "inputs": ["i"],
}


def test_usual_tasks_do_not_go_through_the_models(monkeypatch, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(DOCUMENT, default=float))
    monkeypatch.setattr(DagInstance, "_check_references", None)
    monkeypatch.setattr(DagInstance, "model_validate", None)
    for quick in (0, 2**40):
        monkeypatch.setattr(lazy_text, "QUICK", quick)
        for source in (DOCUMENT, path):
            loaded = remat.load(source)
            assert loaded.columns is not None
            assert loaded.tasks[1].reads == ("v",)
            assert loaded.tasks[0].origin.op == "o::p"
            assert loaded.tasks[2].parallel.max == 2
            assert [*loaded.columns.whole] == [2]
            assert loaded.values[1].shape == (2, 3)


def test_whole_times_whose_sum_is_too_large_are_no_longer_exact(monkeypatch):
    tasks = [{"id": name, "time": 2**61, "size": 1} for name in "ab"]
    document = {"schema": "remat.instance/3", "kind": "dag", "tasks": tasks}
    quick = remat.load(document)
    tasks[1]["time"] -= 1
    exact = remat.load(document)
    by_the_models(monkeypatch)
    assert_same(exact, remat.load(document))
    assert lower(exact).time.dtype == np.int64
    tasks[1]["time"] += 1
    assert_same(quick, remat.load(document))
    assert lower(quick).time.dtype == np.float64


def test_tasks_in_any_order():
    shuffled = DOCUMENT | {"tasks": DOCUMENT["tasks"][::-1]}
    loaded = remat.load(shuffled)
    assert loaded.columns is not None
    assert [task.id for task in loaded.tasks] == ["d", "c", "b", "a"]
    assert_same(loaded, DagInstance.model_validate(shuffled))
    circle = copy.deepcopy(shuffled)
    circle["tasks"][3]["reads"] = ["b"]
    with pytest.raises(InstanceError, match="the graph has a cycle of 2 tasks: 'b' -> 'a' -> 'b'"):
        remat.load(circle)


def test_views_are_sequences():
    tasks = remat.load(DOCUMENT).tasks
    assert (len(tasks), tasks[-1].id, [task.id for task in reversed(tasks)]) == (4, "d", ["d", "c", "b", "a"])
    assert tasks[1] in tasks
    assert tasks.index(tasks[2]) == 2
    assert tasks != 3
    assert tasks != tasks[:2]
    assert repr(tasks) == repr(tuple(tasks))
    with pytest.raises(IndexError):
        tasks[4]


def test_sizes_beyond_what_sums_hold():
    values = [{"id": name, "size": 2**62} for name in "ab"]
    tasks = [{"id": "t", "time": 0, "writes": ["a", "b"]}]
    with pytest.raises(InstanceError, match="the sizes of the graph add up to 9223372036854775808"):
        remat.load({"schema": "remat.instance/1", "kind": "dag", "values": values, "tasks": tasks})


@pytest.mark.usefixtures("from_the_first_character_on")
@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('"id": "c"', '"id": "b"', "a second task is called 'b'"),
        ('"id": "c"', '"id": "c", "id": "c"', "duplicate key 'id'"),
        ('"op": "o::p"', '"op": "o::p", "op": "o::p"', "duplicate key 'op'"),
        ('"reads": ["v"]', '"reads": ["v", "v"]', "'v' is listed twice"),
    ],
)
def test_duplicate_keys_are_refused(monkeypatch, right, wrong, said):
    text = json.dumps(DOCUMENT, default=float).replace(', "parallel": {"max": 2}', "")  # all tasks become records
    assert text.count(right) == 1
    spoilt = text.replace(right, wrong)
    assert said in outcome(io.BytesIO(spoilt.encode()))[0]
    by_the_models(monkeypatch)
    assert said in outcome(io.BytesIO(spoilt.encode()))[0]
