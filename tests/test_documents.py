"""Documents: what is read and refused, and writes that happen wholly or not at all."""

import gzip
import io
import json
import os
import stat
from decimal import Decimal

import pytest

from remat import documents
from remat.documents import read_document, write_atomically, write_text
from remat.errors import InstanceError, RematError


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# ----------------------------------------------------------------------------------------------- reading


def test_paths_open_files_and_standard_input(tmp_path, monkeypatch):
    path = written(tmp_path / "a.json", '{"a": [1, null, true, "é"]}')
    expected = {"a": [1, None, True, "é"]}
    assert read_document(path) == read_document(str(path)) == expected
    with path.open("rb") as file:
        assert read_document(file) == expected
    with path.open(encoding="utf-8") as file:
        assert read_document(file) == expected
    assert read_document(io.StringIO(path.read_text("utf-8"))) == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert read_document("-") == expected


def test_gzip_is_known_by_its_content(tmp_path, monkeypatch):
    packed = gzip.compress(b'{"a": 1}')
    # Whatever it is called, and from wherever it comes.
    assert read_document(written(tmp_path / "a.json", packed)) == {"a": 1}
    assert read_document(written(tmp_path / "a.json.gz", packed)) == {"a": 1}
    assert read_document(written(tmp_path / "b.json.gz", b'{"a": 1}')) == {"a": 1}
    assert read_document(io.BytesIO(packed)) == {"a": 1}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert read_document("-") == {"a": 1}


def test_numbers_are_exact(tmp_path):
    document = read_document(written(tmp_path / "a.json", "[1.1, 1e9, 12345678901234567890, -0.0]"))
    assert document == [Decimal("1.1"), Decimal("1e9"), 12345678901234567890, 0]
    assert type(document[0]) is Decimal


def test_a_byte_order_mark_is_no_error(tmp_path):
    assert read_document(written(tmp_path / "a.json", b"\xef\xbb\xbf[1]")) == [1]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "malformed JSON at line 1, column 1"),
        ("{", "malformed JSON at line 1, column 2"),
        ('{\n  "a": 1,\n}', "malformed JSON at line [23]"),
        ('{"a": 1} x', "malformed JSON at line 1, column 10"),
        ("{'a': 1}", "malformed JSON"),
        (b"\xff\xfe", r"not UTF-8 text \(byte 0\)"),
        (b'["\x80"]', r"not UTF-8 text \(byte 2\)"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("9" * 10_000, r"^\$: a whole number of 10,000 digits"),
        ('{"a": [1, {"b": 0.5, "c": -1' + "0" * 5000 + "}]}", r"^\$\.a\[1\]\.c: a whole number of 5,001 digits"),
        ("[" + "9" * 5000 + ", }", "digits"),
        (gzip.compress(b'{"a": 1}', mtime=0)[:-4], "damaged gzip"),
        (gzip.compress(b'{"a": 1}', mtime=0)[:12], "damaged gzip"),
        (b"\x1f\x8b rubbish", "damaged gzip"),
        (gzip.compress(b"[" * 100_000, mtime=0), "nested too deeply"),
    ],
)
def test_what_is_no_document(tmp_path, content, why):
    path = written(tmp_path / "a.json", content)
    with pytest.raises(InstanceError, match=why) as caught:
        read_document(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "path", "key"),
    [
        ('{"a": 1, "a": 1}', "$", "a"),
        ('{"b": {"c": [0, {"a": 1, "b": 2, "b": 3}]}}', "$.b.c[1]", "b"),
        ('[{"x": {"y": 1, "y": {"y": 1}}}]', "$[0].x", "y"),
        ('{"\\u0061": 1, "a": 2}', "$", "a"),
    ],
)
def test_duplicate_keys(tmp_path, content, path, key):
    with pytest.raises(InstanceError) as caught:
        read_document(written(tmp_path / "a.json", content))
    assert caught.value.path == path
    assert f"duplicate key {key!r}" in str(caught.value)


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(InstanceError, match=r"cannot read schedule '.*nowhere.json': No such file"):
        read_document(tmp_path / "nowhere.json", "schedule")
    with pytest.raises(InstanceError, match="cannot read instance"):
        read_document(tmp_path)
    with pytest.raises(InstanceError, match="cannot read instance"):
        read_document("a\0b")


def test_a_small_file_cannot_unpack_into_all_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "LARGEST_DOCUMENT", 1000)
    bomb = gzip.compress(b" " * 1_000_000)
    for content in (bomb, b" " * 1001):
        with pytest.raises(InstanceError, match="more than"):
            read_document(written(tmp_path / "a.json", content))


# ----------------------------------------------------------------------------------------------- writing


def test_chunks_are_joined(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, ["[1,", " 2]", "\n"])
    assert path.read_text() == "[1, 2]\n"
    write_text(str(path), iter(['"é"']))
    assert path.read_bytes() == '"é"'.encode()
    assert os.listdir(tmp_path) == ["a.json"]


def test_standard_output(capsys):
    write_text("-", ["a", "b\n"])
    assert capsys.readouterr().out == "ab\n"


def test_equal_content_gives_equal_compressed_files(tmp_path, monkeypatch):
    one, other = tmp_path / "one.json.gz", tmp_path / "other.json.gz"
    write_text(one, ["content"])
    monkeypatch.setattr("time.time", lambda: 4e9)
    write_text(other, ["con", "tent"])
    assert one.read_bytes() == other.read_bytes()
    assert gzip.decompress(one.read_bytes()) == b"content"


class Interruption(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt(), Interruption()])
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, name, error):
    path = written(tmp_path / name, "old")

    def chunks():
        yield "new " * 100_000
        raise error

    with pytest.raises(type(error)):
        write_text(path, chunks())
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [name]


def test_a_full_disk_is_a_plain_error(tmp_path):
    path = written(tmp_path / "a.json", "old")

    def write(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(RematError, match=r"cannot write '.*a.json': No space left on device"):
        write_atomically(path, write)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_failed_replacement_leaves_the_old_file(tmp_path, monkeypatch):
    path = written(tmp_path / "a.json", "old")

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(RematError, match="Input/output error"):
        write_text(path, ["new"])
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(RematError, match="No such file or directory"):
        write_text(tmp_path / "nowhere" / "a.json", ["new"])
    (tmp_path / "folder").mkdir()
    with pytest.raises(RematError, match="cannot write"):
        write_text(tmp_path / "folder", ["new"])
    assert os.listdir(tmp_path) == ["folder"]


def test_permissions_are_the_usual_ones_or_those_of_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    mask = os.umask(0o027)
    try:
        write_text(path, ["new"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        write_text(path, ["newer"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(mask)


def test_a_link_stays_a_link(tmp_path):
    target, link = written(tmp_path / "target.json", "old"), tmp_path / "link.json"
    link.symlink_to(target)
    write_text(link, ["new"])
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_devices_are_written_not_replaced():
    write_text("/dev/null", ["gone"])
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_long_names_are_no_problem(tmp_path):
    path = tmp_path / ("n" * 240 + ".json")
    write_text(path, [json.dumps({"a": 1})])
    assert read_document(path) == {"a": 1}
