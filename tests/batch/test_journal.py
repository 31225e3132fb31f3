"""The journal survives what happens to files."""

import json
import os

import pytest

from remat.batch.cells import Answer, Outcome
from remat.batch.journal import Journal
from remat.errors import RematError

ANSWERS = {
    "a": Answer(outcome=Outcome.FEASIBLE, makespan=41, peak_memory={"memory": 7}, steps=3, seconds=0.5),
    "b": Answer(outcome=Outcome.CRASHED, detail="died — ünïcode \ud800"),
    "c": Answer(outcome=Outcome.OPTIMAL, makespan=0.125, lower_bound=0.125, overhead=0.0),
}


def filled(path):
    with Journal(path) as journal:
        for key, answer in ANSWERS.items():
            journal.add(key, answer, {"instance": "x"})
    return path


def reread(path):
    with Journal(path) as journal:
        return journal.answers, journal.damaged


def test_what_is_written_is_read(tmp_path):
    answers, damaged = reread(filled(tmp_path / "j.jsonl"))
    assert answers == ANSWERS
    assert damaged == 0


def test_a_torn_last_line_is_cut_off_wherever_it_tore(tmp_path):
    whole = filled(tmp_path / "j.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    for size in range(len(whole)):
        path = tmp_path / "torn.jsonl"
        path.write_bytes(whole[:size])
        complete = max(0, whole[:size].count(b"\n") - 1)
        answers, damaged = reread(path)
        assert list(answers) == list(ANSWERS)[:complete]
        assert damaged == 0
        # And it goes on as if nothing had happened.
        assert path.read_bytes() == (b"".join(lines[: complete + 1]) or lines[0])


def test_damaged_lines_are_skipped_and_counted(tmp_path):
    path = filled(tmp_path / "j.jsonl")
    lines = path.read_bytes().splitlines()
    broken = [lines[0], lines[1], b'{"key": "b", "answer"', b"\x00\xff", b"[1]", b'{"key":"d","answer":{}}', lines[3]]
    path.write_bytes(b"\n".join(broken) + b"\n")
    answers, damaged = reread(path)
    assert list(answers) == ["a", "c"]
    assert damaged == 4


def test_the_last_of_two_lines_counts(tmp_path):
    path = filled(tmp_path / "j.jsonl")
    better = Answer(outcome=Outcome.OPTIMAL, makespan=3)
    with Journal(path) as journal:
        journal.add("b", better, {})
    assert reread(path)[0] == ANSWERS | {"b": better}


@pytest.mark.parametrize("content", ["hello\n", '{"schema":"remat.instance/1"}\n', "hello", "\n"])
def test_other_files_are_left_alone(tmp_path, content):
    path = tmp_path / "j.jsonl"
    path.write_text(content)
    with pytest.raises(RematError, match="is no journal of remat"):
        Journal(path)
    assert path.read_text() == content


def test_one_run_at_a_time(tmp_path):
    path = tmp_path / "j.jsonl"
    with Journal(path), pytest.raises(RematError, match="in use by another run"):
        Journal(path)
    Journal(path).close()


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(RematError, match="cannot open journal"):
        Journal(tmp_path / "none" / "j.jsonl")
    with pytest.raises(RematError, match="cannot open journal"):
        Journal(tmp_path)


def test_a_full_disk_leaves_the_journal_readable(tmp_path, monkeypatch):
    path = filled(tmp_path / "j.jsonl")
    before = path.read_bytes()
    write = os.write
    with Journal(path) as journal:
        monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:10]))
        with pytest.raises(RematError, match=r"cannot write journal .* 10 of"):
            journal.add("d", ANSWERS["a"], {})
        monkeypatch.undo()
    assert path.read_bytes() == before
    assert json.loads(before.splitlines()[0]) == {"schema": "remat.journal/1"}
