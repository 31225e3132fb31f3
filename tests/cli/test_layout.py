"""`remat layout`."""

import json

import pytest

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


def test_a_schedule(run, tmp_path):
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
    assert "--layout: a question is many solves" in outcome.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,lower,size\nA,0,2\n", "column 'upper' is missing"),
        ("id,lower,upper,size\nA,0,2\n", "line 2 has 3 cells"),
        ("id,lower,upper,size\nA,2,2,5\n", "line 2: A ends at 2, not after 2"),
        ("id,lower,upper,size\nA,0,2,x\n", "line 2: size 'x' is no whole number"),
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
        (["--align", "3"], "--align: 3 is no power of two"),
        (["--fix", "D=0"], "'D' is none of the buffers"),
        (["--fix", "A=0", "--fix", "B=50"], "A and B are fixed at 0 and 50"),
        (["--reserve", "5"], "--reserve: expected FROM-TO"),
        (["--allocator", "liu"], "'liu' solves tree"),
        (["--of", "example:lecture_l5"], "a CSV has neither"),
        (["-o", "placed.json"], "--output: a CSV has no schedule to write; give --format csv or json"),
    ],
)
def test_bad_arguments_are_named(run, buffers, arguments, message):
    outcome = run("layout", buffers, *arguments)
    assert outcome.code == 2
    assert message in outcome.err
