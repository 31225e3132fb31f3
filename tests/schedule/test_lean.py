"""The lean loop over steps takes what the plain one takes, to the same columns, and refuses with the same words."""

import copy
import random
from decimal import Decimal

import pytest

from remat.errors import InstanceError
from remat.schedule import document as module
from remat.schedule.document import SCHEMA_2, parse_steps
from remat.units import Units
from tests.schedule.test_document import CASE, STEPS, same

ODD = [
    *(None, True, False, 0, -1, 1, 2**62, 2**62 + 1, 10**400, 1.5, float("nan"), float("inf"), -0.0),
    *(Decimal("0.25"), Decimal("-1"), Decimal("1e308"), Decimal("1e309"), Decimal("NaN"), Decimal("sNaN")),
    *("", "t", "v", "nobody", "device", 'a "host"', "gpu0", "7B"),
    *([], [0], [5], ["v"], ["v", "nobody"], ["wé", 3], [[]], {}, {"v": 1}, ("v",)),
]
KEYS = ["run", "copy", "drop", "on", "after", "start", "from", "to", "bytes", "memory", "paired", "what"]


def plainly(parser, listed):
    for index, step in enumerate(listed):
        parser._step(index, step)


def outcome(steps):
    try:
        found = parse_steps({"schema": SCHEMA_2, "steps": steps}, CASE.graph, CASE.machine, Units("ms", "B"))
    except InstanceError as error:
        return str(error)
    return found


def drawn(draw):
    steps = [copy.deepcopy(draw.choice(STEPS)) for _ in range(draw.randrange(1, 7))]
    if draw.random() < 0.3:
        for step in steps:
            del step["start"]
    for _ in range(draw.randrange(3)):
        step = draw.choice(steps)
        step[draw.choice([*step, *KEYS])] = draw.choice(ODD)
        if draw.random() < 0.1:
            del step[draw.choice([*step])]
    if draw.random() < 0.05:
        steps[draw.randrange(len(steps))] = draw.choice(ODD)
    return steps


@pytest.mark.parametrize("seed", range(4))
def test_as_the_plain_loop(monkeypatch, seed):
    draw = random.Random(seed)
    lists = [drawn(draw) for _ in range(300)]
    lean = [outcome(steps) for steps in lists]
    monkeypatch.setattr(module._StepParser, "_lean", plainly)
    for steps, found in zip(lists, lean, strict=True):
        plain = outcome(steps)
        if isinstance(plain, str) or isinstance(found, str):
            assert found == plain, steps
        else:
            assert same(found, plain), steps
            assert (found.paired is None) == (plain.paired is None)


def test_usual_steps_do_not_go_through_the_plain_loop(monkeypatch):
    monkeypatch.setattr(module._StepParser, "_step", None)
    steps = [step | {"start": Decimal(str(step["start"]))} for step in STEPS]
    assert len(outcome(steps)) == len(STEPS)
    assert len(outcome(STEPS[:1])) == 1
