"""Documents: what is read and refused, and writes that happen wholly or not at all."""

import gc
import gzip
import io
import json
import os
import stat
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat import documents
from remat.documents import parse_document, read_document, write_atomically, write_text
from remat.errors import InstanceError, RematError


@pytest.fixture(scope="module", autouse=True, params=[documents.QUICK, 0], ids=["usual", "quick"])
def quick(request):
    """All of it as users have it, and with the parser for long documents from the first character on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "QUICK", request.param)
        yield


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
def test_duplicate_keys_are_refused(tmp_path, content, path, key):
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


BOMBS = {
    "lists": b"[],",
    "objects": b"{},",
    "numbers": b"1,",
    "decimals": b"1.5,",
    "exponents": b"1e5,",
    "strings": b'"",',
    "escaped": b'"\\"",',
    "quotes in strings": b'1.5,"' + b'\\"' * 9 + b'",',
    "blanks": b"1,                              ",
    "backslashes": b'"\\\\",1.5,"\\\\\\"",',
    "wide": b'"\\ud83d\\ude00aaaaaaaaaaaaaaaaaaaaa",',
    "short objects": b'{"a":0},',
    "long objects": b'{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0},',
    "nested": b'[[{"a":[{}]}]],',
}


def taken(text):
    """Return the peak bytes that Python takes to parse a text, without shared objects."""
    data = text.encode()
    tracemalloc.start()
    try:
        documents._parsed(data, "x")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def bill(text):
    toll = documents._Toll("x", "schedule")
    for begin in range(0, len(text.encode()), 1000):
        toll.charge(text.encode()[begin : begin + 1000])
    toll.note_keys(text.encode())
    return toll.memory


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_no_document_takes_more_memory_than_its_bill(bomb):
    text = "[" + bomb.decode() * (200_000 // len(bomb)) + "0]"
    assert taken(text) <= bill(text) <= documents.DEAREST * len(text)


def test_objects_with_many_keys_are_in_the_bill():
    one = "{" + ",".join(f'"{k}":{k}' for k in range(1000, 9000)) + "}"
    again = "{" + ",".join(['"a":1000'] * 20_000) + "}"
    for text in (one, "[" + ",".join([one] * 3) + "]", "{" + ",".join(f'"{k}":{{}}' for k in range(8000)) + "}"):
        assert taken(text) <= bill(text)
    with pytest.raises(InstanceError, match="duplicate key"):
        documents._parsed(again.encode(), "x")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from("{[,:]}"),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=4) | st.sampled_from("ab:{"), inner),
    max_leaves=60,
)


@settings(deadline=None, max_examples=40)
@given(JSON, st.booleans())
def test_drawn_documents_take_no_more_than_their_bill(document, plain):
    text = json.dumps([document] * 30, ensure_ascii=plain)
    assert taken(text) <= bill(text) + 20_000  # memory of the parser itself
    assert parse_document(text.encode(), "x") == json.loads(text, parse_float=Decimal)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("what", documents.LIMITS)
@pytest.mark.parametrize(
    "bomb", [b"[],", b"{},", b" ", b'"",', b'"'], ids=["lists", "objects", "blanks", "strings", "text"]
)
def test_bombs_are_refused_while_they_are_unpacked(tmp_path, monkeypatch, bomb, what, packed):
    monkeypatch.setattr(documents, "_CHUNK", 1000)
    monkeypatch.setitem(documents.LIMITS, what, documents.Limit(2**16, 2**17))
    content = b"[" + bomb * 2_000_000
    path = written(tmp_path / "a.json", gzip.compress(content) if packed else content)
    with pytest.raises(InstanceError):  # modules that are imported on the way are not part of the measurement
        read_document(path, what)
    tracemalloc.start()
    try:
        with pytest.raises(InstanceError, match=r"a\.json: .*the limit for an? ") as caught:
            read_document(path, what)
        assert tracemalloc.get_traced_memory()[1] < 400_000
    finally:
        tracemalloc.stop()
    why = "65,536 bytes of JSON" if bomb == b" " else "131,072 bytes of memory"
    assert f"more than {why}" in str(caught.value)
    assert f"{what} of" in str(caught.value)


def test_many_different_keys_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MOST_KEYS", 1000)
    content = "[" + ",".join(f'{{"k{k}" : 1}}' for k in range(1001)) + "]"
    with pytest.raises(InstanceError, match="more than 1,000 different keys, the limit for an instance"):
        read_document(written(tmp_path / "a.json", content))


@pytest.mark.parametrize("number", ["0." + "1" * 5000, "1e" + "0" * 5000 + "1", "1" * 4999 + ".5"])
def test_numbers_of_many_digits_are_refused(tmp_path, number):
    with pytest.raises(InstanceError, match=r"a\.json: a number of 5,0.. characters; at most 4,300 are read"):
        read_document(written(tmp_path / "a.json", f'{{"a": [{number}]}}'))


def test_a_million_tasks_and_ten_million_steps_fit():
    """The bills of shorter documents, times what is missing: reading these takes minutes."""
    tasks = "".join(
        f'{{"id": "v{k}", "size": 123456}},\n{{"id": "t{k}", "time": {k}.5, "reads": ["v{k - 1}", "v{k - 7}"], '
        f'"writes": ["v{k}"]}},\n'
        for k in range(500_000, 502_000)
    )
    steps = "".join(f'{{"run": "F{k}", "start": {k}.25, "drop": ["x{k}"]}},\n    ' for k in range(500_000, 502_000))
    for text, what, count in ((tasks, "instance", 10**6), (steps, "schedule", 10**7)):
        limit = documents.LIMITS[what]
        assert bill(text) * (count // 2000) < limit.memory
        assert len(text) * (count // 2000) < limit.text


@settings(deadline=None, max_examples=300)
@given(
    JSON,
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from('{}[]:," \\\n01.eE-tnN\x01\x7f\ud800é'))),
)
def test_the_quick_parser_takes_only_what_the_strict_one_takes(document, plain, changes):
    text = json.dumps(document, ensure_ascii=plain)
    for place, letter in changes[:4]:
        text = text[:place] + letter + text[place + len(changes) % 2 :]
    found = documents.parsed_quickly(text.encode("utf-8", "surrogatepass"))
    if found is not None:
        assert repr(found) == repr(documents._parsed_strictly(text, "x"))


@pytest.mark.parametrize(
    ("text", "quickly"),
    [
        ('{"a": 1, "b": [{"c": 2.50}]}', True),
        ('{"a": {"b:c": "d:e"}, "f": "{"}', True),
        ('{"a": 1, "a": 1}', False),
        ('{"a": "b\\":c"}', False),
        ('{"a" : 1, "b": 1, "b": 2}', False),
        ('{"a\\":": 1, "b": 2, "b": 3}', False),
        ("[NaN]", False),
        ("[" + "9" * 5000 + "]", False),
    ],
)
def test_what_is_unusual_goes_to_the_strict_parser(text, quickly):
    assert (documents.parsed_quickly(text.encode()) is not None) == quickly


@settings(deadline=None, max_examples=60)
@given(
    st.binary(max_size=60),
    st.sampled_from([b"", b"[", b'{"schema":', b"\x1f\x8b", b"\xef\xbb\xbf", b'"\\u']),
    st.booleans(),
)
def test_any_bytes_are_a_document_or_refused(data, head, packed):
    content = gzip.compress(head + data) if packed else head + data
    try:
        read_document(io.BytesIO(content))
    except InstanceError as error:
        shown = str(error)
    else:
        shown = ""
    assert "\n" not in shown


# ----------------------------------------------------------------------------------------------- writing


def test_chunks_are_joined(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, ["[1,", " 2]", "\n"])
    assert path.read_text() == "[1, 2]\n"
    write_text(str(path), iter(['"é"']))
    assert path.read_bytes() == '"é"'.encode()
    assert os.listdir(tmp_path) == ["a.json"]


def test_text_is_written_to_standard_output(capsys):
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


@settings(max_examples=150)
@given(st.lists(st.sampled_from(['"a":', '"b": ', '"c" :', '"', '\\"', ":", "{", ",", "1", f'"{"k" * 600}":'])))
def test_keys_are_found_wherever_they_stand(pieces):
    chunk = "".join(pieces * 4).encode()
    toll = documents._Toll("x", "instance")
    toll.note_keys(chunk)
    assert toll._keys == set(documents._KEY.findall(chunk))


def test_keys_are_found_beside_those_of_the_chunk_before():
    toll = documents._Toll("x", "instance")
    toll.note_keys(b"")
    for late in ('"b": 1', '"b": 1', '"b": 1, "c": 1', '"d": 1, "d": 1', ""):
        toll._note_keys(b'{"a": 1},' * 400 + late.encode() + b',{"a": 1}')
    assert toll._keys == {b"a", b"b", b"c", b"d"}


def test_the_collector_runs_again_whatever_happens():
    with pytest.raises(InstanceError):
        parse_document(b"[", "x")
    assert gc.isenabled()
    with documents.collector_paused(), documents.collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
