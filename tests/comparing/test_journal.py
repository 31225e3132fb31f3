"""Test that the journal survives damaged files."""

import errno
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat.comparing.cells import Answer, Outcome
from remat.comparing.journal import Journal
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


def test_a_torn_last_line_is_cut_off_wherever_it_tore(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)
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
    with pytest.raises(RematError, match="is not a journal of remat"):
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

    def fill_up(file, data):
        if len(data) < 50:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:10])

    with Journal(path) as journal:
        monkeypatch.setattr(os, "write", fill_up)
        with pytest.raises(RematError, match=r"cannot write journal .* No space left"):
            journal.add("d", ANSWERS["a"], {})
        monkeypatch.undo()
        assert path.read_bytes() == before
        journal.add("d", ANSWERS["a"], {})
    assert json.loads(before.splitlines()[0])["schema"] == "remat.journal/2"
    assert reread(path) == (ANSWERS | {"d": ANSWERS["a"]}, 0)


def test_lines_reach_the_system_at_once_and_the_disk_now_and_then(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        for key, answer in ANSWERS.items():
            journal.add(key, answer, {})
            assert len(path.read_bytes().splitlines()) == 1 + len(journal.answers)
        assert synced == []
        monkeypatch.setattr("remat.comparing.journal.SYNC", -1.0)
        journal.add("d", ANSWERS["a"], {})
        assert synced == [path.stat().st_size]
        # The next one waits again.
        monkeypatch.setattr("remat.comparing.journal.SYNC", 3600.0)
        journal._synced -= 3601
        journal.add("e", ANSWERS["a"], {})
        assert synced[1:] == [path.stat().st_size]
        journal.add("f", ANSWERS["a"], {})
        assert len(synced) == 2


@pytest.mark.parametrize(("code", "fatal"), [(errno.ENOSPC, True), (errno.EIO, True), (errno.EINVAL, False)])
def test_a_disk_that_says_later_that_it_is_full(tmp_path, monkeypatch, code, fatal):
    def fail(file):
        raise OSError(code, os.strerror(code))

    with Journal(tmp_path / "j.jsonl") as journal:
        monkeypatch.setattr("remat.comparing.journal.SYNC", -1.0)
        monkeypatch.setattr(os, "fsync", fail)
        if fatal:
            with pytest.raises(RematError, match="cannot write journal"):
                journal.add("a", ANSWERS["a"], {})
        else:
            journal.add("a", ANSWERS["a"], {})


def test_any_changed_byte_is_noticed(tmp_path, monkeypatch):
    """No digit turns into another, and no answer goes to another job."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    whole = filled(tmp_path / "j.jsonl").read_bytes()
    start = whole.index(b"\n") + 1
    path = tmp_path / "changed.jsonl"
    for position in range(start, len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        answers, _ = reread(path)
        assert answers.items() <= ANSWERS.items()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][: lines[1].index(b'"answer"')] + lines[3][lines[3].index(b'"answer"') :])
    assert reread(path) == ({}, 1)


def test_a_damaged_first_line_is_one_of_them(tmp_path):
    path = filled(tmp_path / "j.jsonl")
    path.write_bytes(b"\0" + path.read_bytes())
    assert reread(path) == (ANSWERS, 1)


@pytest.mark.parametrize(
    "answer",
    [
        '{"outcome":"splendid"}',
        '{"outcome":"optimal"}',
        '{"outcome":"optimal","makespan":"41"}',
        '{"outcome":"optimal","makespan":true}',
        '{"outcome":"optimal","makespan":1,"peak_memory":[7]}',
        '{"outcome":"optimal","makespan":1,"peak_memory":{"memory":"7"}}',
        '{"outcome":"optimal","makespan":1,"peak_memory":{"memory":7,"disk":"7"}}',
        '{"outcome":"crashed","detail":null}',
        '["outcome"]',
        "41",
    ],
)
def test_answers_that_are_none(tmp_path, answer):
    """Lines without a checksum, for example from an editor: entries that are not figures are rejected."""
    path = older(filled(tmp_path / "j.jsonl"))
    with path.open("a") as file:
        file.write(f'{{"key":"d","answer":{answer}}}\n')
        file.write('{"key":"e","answer":{"outcome":"optimal","makespan":3,"new":1}}\r\n')
    assert reread(path) == (ANSWERS | {"e": Answer(outcome=Outcome.OPTIMAL, makespan=3)}, 1)


def older(path, unsigned=False):
    """Give a journal the first line of the format without checksums, and optionally remove the checksums."""
    lines = path.read_bytes().splitlines()[1:]
    if unsigned:
        lines = [line.partition(b',"crc":"')[0] + b"}" for line in lines]
    path.write_bytes(b"\n".join([b'{"schema":"remat.journal/1"}', *lines]) + b"\n")
    return path


@pytest.mark.parametrize("unsigned", [False, True])
def test_journals_of_before_are_read_and_go_on(tmp_path, unsigned):
    path = older(filled(tmp_path / "j.jsonl"), unsigned)
    assert reread(path) == (ANSWERS, 0)
    with Journal(path) as journal:
        journal.add("d", ANSWERS["a"], {})
    assert path.read_bytes().startswith(b'{"schema":"remat.journal/1"}\n')
    assert reread(path) == (ANSWERS | {"d": ANSWERS["a"]}, 0)


def test_lines_without_a_checksum_are_damaged(tmp_path):
    """An edit that removed the checksum may also have changed a digit."""
    path = filled(tmp_path / "j.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"41,", b"14,", 1).replace(b',"crc":"', b',"crd":"', 2).replace(b"crd", b"crc", 1))
    answers, damaged = reread(path)
    assert (list(answers), damaged) == (["b", "c"], 1)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_no_damage_changes_an_answer(tmp_path_factory, data):
    """After any change of bytes, each line reads as written or counts as damaged, including the first line."""
    path = filled(tmp_path_factory.mktemp("damage") / "j.jsonl")
    whole = bytearray(path.read_bytes())
    marks = [whole.index(b'"crc"') + 2, whole.index(b"journal/2") + 8, whole.index(b"41")]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.sampled_from(marks) | st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from(b'0129x,"{}') | st.integers(32, 126))
    path.write_bytes(bytes(whole))
    try:
        answers, _ = reread(path)
    except RematError:
        answers = {}
    assert answers.items() <= ANSWERS.items()


def test_keys_that_are_none(tmp_path):
    path = older(filled(tmp_path / "j.jsonl"))
    with path.open("a") as file:
        file.write('{"key":7,"answer":{"outcome":"unknown"}}\n')
    assert reread(path) == (ANSWERS, 1)


def test_the_journal_is_utf_8(tmp_path):
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.add("k", ANSWERS["b"], {"instance": "caf\udce9"})
    line = json.loads(path.read_text("utf-8").splitlines()[1])
    assert line["instance"] == "caf\udce9"
    assert reread(path)[0] == {"k": ANSWERS["b"]}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX files")
def test_what_would_never_end_is_no_journal(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(RematError, match="is not a journal"):
            Journal(tmp_path / name)


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400])
def test_a_line_with_a_number_beyond_all_range_is_damaged(tmp_path, figure):
    """Ratios of such figures would be errors or meaningless."""
    path = tmp_path / "j.jsonl"
    entry = '{"key":"%s","answer":{"outcome":"feasible","makespan":%s,"peak_memory":{"memory":%s}}}\n'
    path.write_text('{"schema":"remat.journal/1"}\n' + entry % ("a", figure, 1) + entry % ("b", 2, 3))
    answers, damaged = reread(path)
    assert list(answers) == ["b"]
    assert damaged == 1


@pytest.mark.parametrize("size", [1.5, "7", True, None])
def test_answers_with_one_size_that_is_no_integer_are_refused(size):
    answer = {"outcome": "feasible", "peak_memory": {"device": 7, "host": size}}
    with pytest.raises(TypeError, match="peak_memory: sizes are whole numbers"):
        Answer.from_dict(answer)
