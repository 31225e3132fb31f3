"""Test miniatures: small, true to the schedule within their resolution, and read back or refused."""

import base64
import json
import zlib

import pytest

import remat
from remat.comparing.cells import Answer
from remat.comparing.worker import answer
from remat.report.views.minimap import (
    LEVELS,
    MOST_LINES,
    MOST_ROWS,
    PHASES,
    SLICES,
    miniature,
    pack,
    runs_of,
    unpack,
)
from remat.report.views.phases import Phase
from tests.report.results import CHAIN, chain_result, long_result, offload_result, result_of
from tests.report.views.by_hand import halves, reversed_adjoint, spilled_tree

RESULTS = {
    "chain": halves,
    "adjoint": reversed_adjoint,
    "dag": offload_result,
    "tree": spilled_tree,
}
LARGEST_TEXT = 6_000


@pytest.mark.parametrize("kind", RESULTS)
def test_a_minimap_survives_a_round_trip(kind):
    record = miniature(RESULTS[kind](), kind)
    text = pack(record)
    assert unpack(text) == record
    assert text.isascii()
    assert len(text) < 1000


@pytest.mark.parametrize("kind", RESULTS)
def test_memories_and_rows(kind):
    result = RESULTS[kind]()
    record = miniature(result, kind)
    for line in record.memories:
        assert line.peak == result.peak_memory[line.name]
        assert max(line.levels) == LEVELS
        assert len(line.levels) == SLICES
        assert 0 <= line.at <= SLICES
        assert line.cause == result.peak_step(line.name)
    for row in record.rows:
        assert runs_of(row.slices)[-1][2] == SLICES
        busy = sum(end - first for letter, first, end in runs_of(row.slices) if letter != ".")
        share = float(result.report.busy[row.name]) / float(result.makespan)
        assert busy / SLICES == pytest.approx(share, abs=0.05)


def test_what_a_row_shows():
    """Of 14 units of time, the first four are forwards."""
    result = halves()
    (row,) = miniature(result, "chain").rows
    runs = [(letter, first, end) for letter, first, end in runs_of(row.slices)]
    names = {letter: phase for phase, letter in PHASES.items()}
    scale = SLICES / float(result.makespan)
    expected = [Phase.FORWARD, Phase.SAVING, Phase.LOSS, Phase.BACKWARD, Phase.RECOMPUTATION, Phase.BACKWARD]
    assert [names[letter] for letter, _, _ in runs] == expected
    assert [end for _, _, end in runs] == pytest.approx([scale * t for t in (4, 6, 7, 10, 14, 20)], abs=1)


def test_views_by_kind():
    chain = miniature(halves(), "chain")
    assert chain.bars is not None
    assert chain.bars.runs == (0, 2, 2, 1)
    assert chain.bars.stages == 3
    assert [sum(bar) for bar in chain.bars.bars] == pytest.approx([LEVELS / 1.5, LEVELS, LEVELS, LEVELS], abs=1)
    adjoint = miniature(reversed_adjoint(), "adjoint")
    assert adjoint.lines is not None
    assert len(adjoint.lines.lines) == 10
    tree = miniature(spilled_tree(), "tree")
    assert tree.pixels is not None
    assert tree.pixels.remark == "6 nodes, 20 spilled from 1 of them"
    assert any("S" in row for row in tree.pixels.rows)
    dag = miniature(offload_result(), "dag")
    assert dag.pixels is not None
    assert {letter for row in dag.pixels.rows for letter, _, _ in runs_of(row)} == {"o", "b", "r", "f", "e", "."}


@pytest.mark.slow
def test_small_whatever_the_schedule_is():
    machine = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m", "count": 30}]}
    tasks = [{"id": f"t{i}", "time": 1 + i % 7, "writes": []} for i in range(3000)]
    many = {"schema": "remat.instance/1", "kind": "dag", "machine": machine, "tasks": tasks}
    wide = result_of(many, [{"run": f"t{i}", "on": [f"p{i % 30}"]} for i in range(3000)])
    for result, kind in (
        (wide, "dag"),
        (long_result(), "dag"),
        (remat.solve(remat.example("loop_n10000")), "adjoint"),
        (remat.solve(remat.example("seismic")), "adjoint"),
        (remat.solve(remat.example("binary_n1000")), "tree"),
        (chain_result(), "chain"),
    ):
        record = miniature(result, kind)
        assert len(pack(record)) < LARGEST_TEXT
        assert len(record.rows) <= MOST_ROWS
        assert record.lines is None or len(record.lines.lines) <= MOST_LINES
    assert miniature(wide, "dag").hidden_rows == 30 - MOST_ROWS


def test_names_are_printable_and_short():
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "tasks": [{"id": "a\nb" + 200 * "n", "time": 1, "size": 3}],
    }
    lone = result_of(document, [{"run": document["tasks"][0]["id"]}])
    record = miniature(lone, "dag")
    assert unpack(pack(record)) == record
    assert record.memories[0].cause.startswith("a\\nbnnn")
    assert len(record.memories[0].cause) < 50


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "no base 85 \u20ac",
        base64.b85encode(b"no zlib").decode(),
        base64.b85encode(zlib.compress(b"[1, 2]")).decode(),
        base64.b85encode(zlib.compress(b'{"memories": 3}')).decode(),
        base64.b85encode(zlib.compress(b"[" * 10**7)).decode(),
    ],
)
def test_what_is_no_record(text):
    assert unpack(text) is None


def test_a_worker_makes_it_where_it_is_asked_for(tmp_path):
    """A worker makes a requested miniature, and the answer keeps it through JSON and the journal."""
    path = tmp_path / "chain.json"
    path.write_text(json.dumps(CHAIN), "utf-8")
    request = {"source": str(path), "algorithm": "rotor", "options": {}, "capacity": 6 * 2**20, "machine": None}
    request |= {"seed": 0, "threads": 1, "time_limit": 10.0}
    assert answer(request).picture == ""
    found = answer(request | {"picture": True})
    assert unpack(found.picture) == miniature(remat.solve(CHAIN, algorithm="rotor", budget="6MiB"), "chain")
    assert Answer.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert answer(request | {"capacity": 1, "picture": True}).picture == ""


def test_an_empty_schedule_has_a_minimap():
    optional = [{"id": "t", "time": 1, "writes": [], "required": False}]
    nothing = result_of({"schema": "remat.instance/1", "kind": "dag", "tasks": optional}, [])
    record = miniature(nothing, "dag")
    assert unpack(pack(record)) == record
    assert record.rows[0].slices == f".{SLICES}"
