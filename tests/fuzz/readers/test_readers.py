"""A few mutations of every target, as `make fuzz-readers` runs them; and the fuzzer sees what it is for."""

import json
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest

import remat
from remat.errors import InstanceError
from tests.fuzz.readers import LARGEST_DOCUMENT, judging
from tests.fuzz.readers.judging import Judge
from tests.fuzz.readers.mutation import mutated
from tests.fuzz.readers.reduction import reduced
from tests.fuzz.readers.targets import MODULES, target
from tests.places import ROOT


def test_mutations_break_no_promise(tmp_path):
    """A separate process with limits of memory and time reads mutated documents of each kind without findings."""
    command = [sys.executable, "-m", "tests.fuzz.readers", "--inside", "--plain", "--documents", "15"]
    command += [f"--target={name}" for name in MODULES] + ["--findings", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [report["target"] for report in reports] == list(MODULES)
    assert all(report["documents"] >= 15 for report in reports)
    assert not [report for report in reports if report["findings"]], done.stdout


@pytest.mark.parametrize("name", MODULES)
def test_seeds_are_read(name):
    """All but some that are there to be refused."""
    read = 0
    for data in target(name).seeds:
        try:
            target(name).read(data)
        except remat.RematError:
            continue
        read += 1
    assert read >= 1
    assert read >= 0.6 * len(target(name).seeds)


def test_a_mutation_is_drawn_from_its_seed():
    for name in MODULES:
        known = target(name)
        drawn = [
            [mutated(known.seeds[0], random.Random(seed), known.words, tree=known.tree) for seed in range(20)]
            for _ in range(2)
        ]
        assert drawn[0] == drawn[1]
        assert len(set(drawn[0])) > 10
        assert max(map(len, drawn[0])) <= LARGEST_DOCUMENT


def _judged(read, data=b"{}"):
    """Judge a reader that is not one of ours, without limits: those are of the process."""
    judge = Judge.__new__(Judge)
    judge.target, judge.documents, judge.refused = SimpleNamespace(read=read), 1, 0
    return judge, judge(data)


def _raising(error):
    def read(data):
        raise error

    return read


@pytest.fixture(autouse=True)
def no_timers(monkeypatch):
    monkeypatch.setattr(judging.signal, "setitimer", lambda *_: None)


def test_broken_promises_are_seen():
    assert _judged(lambda data: None)[1] is None
    assert _judged(_raising(InstanceError("short", "$.a")))[1] is None
    assert _judged(_raising(OverflowError("int too large")))[1].rule == "error"
    assert _judged(_raising(MemoryError()))[1].rule == "memory"
    assert _judged(_raising(judging.TooSlow()))[1].rule == "time"
    unbounded = InstanceError("x")
    unbounded.args = ("x" * 301,)
    assert _judged(_raising(unbounded))[1].rule == "message"
    for text in ("two\nlines", "\x1b[31m", ""):
        unbounded.args = (text,)
        assert _judged(_raising(unbounded))[1].rule == "message"


def test_a_finding_is_reduced():
    def read(data):
        if json.loads(data)["b"][1]["x"] > 3:
            raise KeyError

    document = {"a": [1, 2, 3], "b": [{"x": 1}, {"x": 77, "y": "long" * 100}], "c": None}
    judge, found = _judged(read, json.dumps(document).encode())
    small = reduced(json.dumps(document).encode(), judge, found.cause)
    assert len(small) < 30
    assert judge(small).cause == found.cause
