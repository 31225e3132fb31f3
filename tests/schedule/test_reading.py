"""Test the fast step reader: same columns and same error messages as the ordinary reader."""

import copy
import json
import random

import pytest

from remat.documents import Unparsed, read_document
from remat.errors import InstanceError
from remat.instance import lazy_text
from remat.instance.lazy_text import ListText, opened
from remat.schedule.document import SCHEMA, SCHEMA_2, parse_steps
from remat.schedule.reading import columns_of, read_schedule
from remat.units import Units
from tests.schedule.test_document import CASE, STEPS, same
from tests.schedule.test_lean import drawn

UNITS = Units("ms", "B")


@pytest.fixture(autouse=True)
def from_the_first_character_on(monkeypatch):
    monkeypatch.setattr(lazy_text, "QUICK", 0)


def outcome(text, *, quickly):
    """Return the columns of a document's text, or what is wrong with it."""
    unparsed = Unparsed("a.json", text.encode("utf-8", "surrogatepass"), "schedule")
    try:
        document = opened(unparsed, "steps") if quickly else unparsed.parse()
        return parse_steps(document, CASE.graph, CASE.machine, UNITS)
    except InstanceError as error:
        return str(error)


def agree(text):
    """Assert that both readers say the same; return whether the text went into columns."""
    quick, plain = outcome(text, quickly=True), outcome(text, quickly=False)
    if isinstance(plain, str) or isinstance(quick, str):
        assert quick == plain, text
        return False
    assert same(quick, plain), text
    for one, other in ((quick.start, plain.start), (quick.paired, plain.paired), (quick.drop.start, plain.drop.start)):
        assert (one is None) == (other is None), text
        assert one is None or (one.dtype == other.dtype and one.tolist() == other.tolist()), text
    assert quick.unknown == plain.unknown
    listed = opened(Unparsed("a.json", text.encode(), "schedule"), "steps")["steps"]
    return isinstance(listed, ListText) and columns_of(listed, CASE.graph, CASE.machine) is not None


def written(steps, draw, schema=SCHEMA_2):
    """Write a document in one of several common JSON styles."""
    more = {"seed": 3, "notes": ['of "steps": [1, 2]']}
    document = {"schema": schema, **more, "steps": steps} if draw.random() < 0.7 else {"steps": steps, "schema": schema}
    style = draw.choice(({}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}))
    return json.dumps(document, default=float, **style)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 13))])
def test_as_the_ordinary_reader(monkeypatch, seed):
    draw = random.Random(f"reading {seed}")
    taken = 0
    for _ in range(300):
        monkeypatch.setattr(lazy_text, "PART", draw.choice((1, 20, 100, 10_000)))
        steps = drawn(draw) if draw.random() < 0.6 else [draw.choice(STEPS) for _ in range(draw.randrange(1, 9))]
        if any(isinstance(step, dict) and any(isinstance(v, tuple) for v in step.values()) for step in steps):
            continue
        try:
            text = written(steps, draw)
        except (ValueError, TypeError, OverflowError):  # not everything that is drawn is JSON
            continue
        taken += agree(text)
    assert taken > 15


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 13))])
def test_spoilt_texts_get_the_answer_of_the_ordinary_reader(monkeypatch, seed):
    draw = random.Random(f"spoilt {seed}")
    letters = '{}[]:," \\\n01.eE-tn\x01\x7fé'
    for _ in range(500):
        monkeypatch.setattr(lazy_text, "PART", draw.choice((1, 20, 100, 10_000)))
        steps = [copy.deepcopy(draw.choice(STEPS)) for _ in range(draw.randrange(1, 5))]
        text = written(steps, draw, draw.choice((SCHEMA, SCHEMA_2)))
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(len(text))
            text = (
                text[:place]
                + draw.choice(("", draw.choice(letters), text[place : place + 9]))
                + text[place + draw.randrange(2) :]
            )
        agree(text)


ROW = '{"run": "t", "start": 0}'


@pytest.mark.parametrize(
    ("steps", "quickly"),
    [
        (f"[{ROW}]", True),
        (f"[\n{ROW} ,\t{ROW}\n]", True),
        ("[]", False),
        ('[{"run": "t", "start": 0.5}, {"run": "t", "start": 1}]', True),
        ('[{"run" : "t", "start": 0}]', True),
        ('[{"run": "t", "run": "t", "start": 0}]', False),
        ('[{"run": "t", "r\\u0075n": "t", "start": 0}]', False),
        ('[{"run": "", "start": 0}]', False),
        ('[{"run": "t", "start": -0}]', True),
        ('[{"run": "t", "start": -0.0}]', True),
        ('[{"run": "t", "start": -1}]', False),
        ('[{"run": "t", "start": 1e400}]', False),
        ('[{"run": "t", "start": "3ms"}]', False),
        (f'[{{"run": "t", "start": 0.{"1" * 5000}}}]', False),
        (f'[{{"run": "t", "start": {"1" * 5000}}}]', False),
        ('[{"run": "t", "start": 4611686018427387904}, {"run": "t", "start": 0.5}]', True),
        ('[{"run": "t", "start": 4611686018427387905}, {"run": "t", "start": 0.5}]', False),
        ('[{"run": "t"}, {"run": "t", "start": 0}]', False),
        ('[{"run": "t", "start": null}]', False),
        ('[{"run": "nobody", "start": 0}]', False),
        ('[{"run": "t", "copy": "v", "start": 0}]', False),
        ('[{"run": "t", "paired": true}]', False),
        ('[{"copy": "v", "from": "device", "to": "a \\"host\\"", "drop": false}]', True),
        ('[{"copy": "v", "from": "device"}]', False),
        ('[{"drop": ["v"]}]', True),
        ('[{"drop": true}]', False),
        ('[{"drop": ["v"], "memory": "device", "after": []}]', True),
        ('[{"drop": ["v"], "after": [0]}]', False),
        ('[{"run": "t", "on": ["gpu0"], "drop": []}]', True),
        ('[{"run": "t", "on": ["gpu0", 3]}]', False),
        ("[1]", False),
        ('{"run": "t"}', False),
        ("null", False),
    ],
)
def test_what_goes_straight_into_columns(monkeypatch, steps, quickly):
    for part in (1, 10_000):
        monkeypatch.setattr(lazy_text, "PART", part)
        text = f'{{"schema": "{SCHEMA_2}", "steps": {steps}}}'
        assert agree(text) == quickly
        agree(f'{{"steps": {steps}, "seed": 0, "schema": "{SCHEMA}"}}')


@pytest.mark.parametrize(
    "text",
    [
        f'{{"schema": "{SCHEMA}", "steps": [{ROW}], "steps": [{ROW}]}}',
        f'{{"schema": "{SCHEMA}", "seed": 1, "seed": 1, "steps": [{ROW}]}}',
        f'{{"schema": "{SCHEMA}", "steps": [{ROW}], "unknown": 1}}',
        f'{{"schema": "{SCHEMA}", "steps": [{ROW}]}} x',
        f'{{"schema": "{SCHEMA}", "steps": [{ROW}',
        f'{{"schema": "remat.instance/1", "steps": [{ROW}, {{]}}',
        f'{{"schema": "{SCHEMA}", "steps": [{{"run": "a}}, {{b", "start": 0}}]}}',
        f'{{"schema": "{SCHEMA}", "steps": [{{"run": "t", "drop": [{{"a": 1}}, {{"b": 2}}]}}]}}',
        f'[{{"steps": [{ROW}]}}]',
        f'{{"schema": "{SCHEMA}", "steps": [{{"run": "t\ud800"}}]}}',
    ],
)
def test_other_documents_get_the_answer_of_the_ordinary_reader(monkeypatch, text):
    for part in (1, 10_000):
        monkeypatch.setattr(lazy_text, "PART", part)
        agree(text)


def test_keys_in_any_order():
    chance = random.Random(1)
    steps = [dict(chance.sample([*step.items()], len(step))) for step in STEPS * 40]
    assert agree(written(steps, random.Random(2)))


def test_a_list_once_somebody_looks(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"schema": SCHEMA_2, "steps": STEPS}))
    document, plain = read_schedule(path), read_document(path)
    assert isinstance(document["steps"], ListText)
    assert len(document["steps"]) == len(STEPS)
    assert document["steps"][0] == plain["steps"][0]
    assert document["steps"][1:3] == plain["steps"][1:3]
    assert list(document["steps"]) == plain["steps"]
    columns = parse_steps(document, CASE.graph, CASE.machine, UNITS)
    assert same(columns, parse_steps(plain, CASE.graph, CASE.machine, UNITS))
