"""`remat layout`."""

import json

import pytest

from remat.solving import layout_search
from tests.solving.test_layout_search import drawn as drawn_graph

TABLE = "id,lower,upper,size\nA,0,2,100\nB,1,3,80\nC,2,4,60\n"


@pytest.fixture
def buffers(tmp_path):
    path = tmp_path / "buffers.csv"
    path.write_text(TABLE)
    return str(path)


def test_a_table_is_laid_out_and_written(run, buffers):
    outcome = run("layout", buffers, "--format", "csv")
    assert outcome.code == 0
    rows = [line.split(",") for line in outcome.out.split()]
    assert [row[:4] for row in rows] == [line.split(",") for line in TABLE.split()]
    assert rows[0][4] == "offset"
    assert max(int(row[3]) + int(row[4]) for row in rows[1:]) == 180


def test_a_capacity_that_is_too_small(run, buffers):
    assert run("layout", buffers, "--capacity", "180B").code == 0
    outcome = run("layout", buffers, "--capacity", "179B", "--format", "json")
    assert outcome.code == 4
    document = json.loads(outcome.out)
    assert document["infeasible_within"] == "this schedule"
    assert document["lower_bound"] == 180


def test_a_schedule_gets_addresses(run, tmp_path):
    path = str(tmp_path / "schedule.json")
    assert run("solve", "example:lecture_l5", "-o", path, "-q").code == 0
    outcome = run("layout", path, "--of", "example:lecture_l5")
    assert outcome.code == 0
    assert "fragmentation" in outcome.out


def test_a_schedule_is_written_with_addresses(run, tmp_path):
    plain, placed = (str(tmp_path / name) for name in ("plain.json", "placed.json"))
    assert run("solve", "example:lecture_l5", "-o", plain, "-q").code == 0
    assert run("layout", plain, "--of", "example:lecture_l5", "-o", placed).code == 0
    outcome = run("verify", "example:lecture_l5", placed)
    assert outcome.code == 0
    assert "arena " in outcome.out
    document = json.loads((tmp_path / "placed.json").read_text())
    before = json.loads((tmp_path / "plain.json").read_text())
    added = {"schema", "arenas", "addresses"}
    assert {key: document[key] for key in document.keys() - added} == {
        key: before[key] for key in before.keys() - added
    }
    document["addresses"][0]["offset"] += 1
    (tmp_path / "placed.json").write_text(json.dumps(document))
    assert run("verify", "example:lecture_l5", placed).code == 6
    outcome = run("layout", plain, "--of", "example:lecture_l5", "-o", "-")
    assert json.loads(outcome.out)["schema"] == "remat.schedule/2"
    assert "fragmentation" in outcome.err


def test_addresses_above_the_capacity_are_not_written(run, tmp_path):
    path, placed = str(tmp_path / "schedule.json"), tmp_path / "placed.json"
    assert run("solve", "example:lecture_l5", "-b", "100%", "-o", path, "-q").code == 0
    outcome = run("layout", path, "--of", "example:lecture_l5", "--reserve", "0-1", "-o", str(placed))
    assert outcome.code == 4
    assert "is not written: the arena takes" in outcome.err
    assert not placed.exists()


def test_solve_finds_addresses(run, tmp_path):
    path = str(tmp_path / "placed.json")
    outcome = run("solve", "example:lecture_l5", "-b", "100%", "--layout", "-o", path)
    assert outcome.code == 0
    assert "the addresses cost no time" in outcome.out
    assert "arena " in outcome.out
    assert "arena " in run("verify", "example:lecture_l5", path).out
    outcome = run("solve", "example:lecture_l5", "-b", "1", "--layout", "--format", "json")
    assert outcome.code == 3
    outcome = run("solve", "example:lecture_l5", "--layout", "--max-overhead", "10%")
    assert outcome.code == 2
    assert "--layout: a question runs many solves" in outcome.err


FOREIGN = """buffer_id,start,end,size,alignment,hint,gaps
A,0,1,100,8,-1,
B,1,2,80,8,3,
C,2,3,60,8,-1,
"""


def test_columns_of_minimalloc(run, tmp_path):
    path = tmp_path / "buffers.csv"
    path.write_text(FOREIGN)
    outcome = run("layout", str(path), "--format", "csv")
    rows = [line.split(",") for line in outcome.out.split()]
    assert rows[0] == ["id", "lower", "upper", "size", "alignment", "offset"]
    assert [row[1:5] for row in rows[1:]] == [["0", "2", "100", "8"], ["1", "3", "80", "8"], ["2", "4", "60", "8"]]
    assert {int(row[5]) % 8 for row in rows[1:]} == {0}
    path.write_text(outcome.out)  # an offset is an address that a buffer must have
    assert run("layout", str(path), "--format", "csv").out == outcome.out
    path.write_text(TABLE.replace("size", "size,offset").replace("0\n", "0,7\n").replace("B,1,3,80,7", "B,1,3,80,200"))
    assert json.loads(run("layout", str(path), "--format", "json").out)["lower_bound"] == 280


def test_buffers_for_minimalloc(run, tmp_path):
    schedule, path = (str(tmp_path / name) for name in ("schedule.json", "buffers.csv"))
    assert run("solve", "example:lecture_l5", "-o", schedule, "-q").code == 0
    arguments = ["layout", schedule, "--of", "example:lecture_l5", "--align", "4"]
    assert run(*arguments, "--format", "minimalloc-csv", "-o", path).code == 0
    documents = [json.loads(run(*more, "--format", "json").out) for more in (["layout", path], arguments)]
    assert [row.pop("offset") is None for row in documents[0]["addresses"]] == [False] * 12
    for row in documents[1]["addresses"]:
        row.pop("offset")
    assert documents[0]["addresses"] == documents[1]["addresses"]
    assert {document["alignment"] for document in documents} == {4}


def test_a_periodic_schedule_has_no_addresses(run, tmp_path):
    path, schedule = tmp_path / "stream.json", str(tmp_path / "schedule.json")
    tasks = [{"id": "A", "time": 1, "reads": [], "writes": ["a"], "required": True}]
    document = {"schema": "remat.instance/3", "kind": "dag", "stream": 4, "tasks": tasks}
    path.write_text(json.dumps(document | {"values": [{"id": "a", "size": 4}]}))
    assert run("solve", str(path), "-o", schedule, "-q").code == 0
    for arguments, start in (
        (["layout", schedule, "--of", str(path)], ""),
        (["solve", str(path), "--layout"], "--layout: "),
    ):
        outcome = run(*arguments)
        assert outcome.code == 2
        assert outcome.err == f"Error: {start}a schedule that repeats itself without end has no addresses\n"


def test_schedules_without_addresses_are_no_proof(run, tmp_path, monkeypatch):
    """Exit code 3 is for proofs over all schedules; a proof about one schedule is exit code 4."""
    for name in ("MOST_BUDGETS", "MOST_CHANGES", "MOST_INCUMBENTS"):
        monkeypatch.setattr(layout_search, name, 0)
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(drawn_graph(6)))
    outcome = run("solve", str(path), "-b", "87B", "--algorithm", "dag-exact", "--layout", "--format", "json")
    document = json.loads(outcome.out)
    assert outcome.code == 4
    assert (document["status"], document["infeasible_within"]) == ("unknown", "the schedule that was laid out")
    outcome = run("solve", str(path), "-b", "10B", "--algorithm", "dag-exact", "--layout", "--format", "json")
    document = json.loads(outcome.out)
    assert outcome.code == 3
    assert (document["status"], document["infeasible_within"]) == ("infeasible", "all schedules")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,lower,size\nA,0,2\n", "column 'upper' is missing"),
        ("id,lower,upper,size\nA,0,2\n", "line 2 has 3 cells"),
        ("id,lower,upper,size\nA,2,2,5\n", "line 2: A ends at 2, not after 2"),
        ("id,lower,upper,size\nA,0,2,x\n", "line 2: size 'x' is not a whole number"),
        ("id,lower,upper,size\nA,0,2,0\n", "buffers.csv: A has no bytes"),
        ("id,lower,upper,size\nA,0,2,4611686018427387904\nB,0,2,1\n", "the sizes add up to more than 2^62 bytes"),
        ("id,lower,upper,size,gaps\nA,0,2,9,\nB,0,9,9,2-3\n", "line 3: B has gaps in its lifetime"),
        ("id,lower,upper,size,alignment\nA,0,2,9,8\nB,0,9,9,4\n", "'alignment' has the values 4 and 8; only one"),
        ("id,lower,upper,size,alignment\nA,0,2,9,3\n", "buffers.csv: 3 is not a power of two"),
        ("id,lower,upper,size,offset\nA,0,2,9,0\nB,0,9,9,8\n", "A and B are fixed at 0 and 8, where they overlap"),
        ("", "the file is empty"),
    ],
)
def test_bad_tables_are_named(run, tmp_path, text, message):
    path = tmp_path / "buffers.csv"
    path.write_text(text)
    outcome = run("layout", str(path))
    assert outcome.code == 2
    assert message in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--align", "3"], "--align: 3 is not a power of two"),
        (["--align", "4EiB"], "Error: the sizes add up to more than 2^62 bytes"),
        (["--fix", "D=0"], "--fix: 'D' is not one of the buffers"),
        (["--fix", "A=0", "--fix", "B=50"], "--fix: A and B are fixed at 0 and 50"),
        (["--fix", "A=4EiB"], "Error: the sizes and the addresses add up to more than 2^62 bytes"),
        (["--reserve", "0-4EiB"], "Error: the sizes and the addresses add up to more than 2^62 bytes"),
        (["--reserve", "5-2"], "--reserve: 5-2 is not a range of addresses"),
        (["--reserve", "5"], "--reserve: expected FROM-TO"),
        (["--allocator", "liu"], "--allocator: 'liu' solves tree"),
        (["--format", "minimalloc-csv", "--fix", "A=0"], "--fix: --format minimalloc-csv writes buffers"),
        (["--of", "example:lecture_l5"], "a CSV has no instance"),
        (["-o", "placed.json"], "--output: a CSV has no schedule to write; give --format csv or json"),
    ],
)
def test_bad_arguments_are_named(run, buffers, arguments, message):
    outcome = run("layout", buffers, *arguments)
    assert outcome.code == 2
    assert message in outcome.err
