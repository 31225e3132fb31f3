"""Tables fit where they are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat.cli.main import main
from remat.report.text.columns import aligned, fitted, room, text_width

WORDS = st.text("abcdefgh", max_size=30)


TABLES = st.integers(1, 9).flatmap(
    lambda count: st.lists(st.lists(WORDS, min_size=count, max_size=count), min_size=1, max_size=5)
)


@given(TABLES, st.integers(1, 2), st.integers(60, 200))
def test_nothing_is_lost_and_all_fits(rows, left, width):
    left = min(left, len(rows[0]))
    parts = fitted(rows, left=left, between=2, width=width)
    shown = [[cell for part in parts for cell in part[k][left:]] for k in range(len(rows))]
    kept = [k for k in range(left, len(rows[0])) if len(parts) == 1 or any(row[k] for row in rows)]
    for cells, row in zip(shown, rows, strict=True):
        for cell, k in zip([cell for cell in cells if cell], [k for k in kept if row[k]], strict=True):
            assert cell == row[k] or (cell[-1] == "…" and row[k].startswith(cell[:-1]))
            assert cell == row[k] or len(row[k]) > 20
    text = aligned(rows, left=(0,), keep=left, width=width)
    assert max(map(len, text.split("\n"))) <= width


def test_a_table_that_fits_is_whole():
    rows = [("name", "x"), ("a", "1"), ("long", "22")]
    assert aligned(rows, left=(0,)) == "name   x\na      1\nlong  22"
    assert aligned(rows, left=(0,), width=8) == aligned(rows, left=(0,))


@pytest.mark.parametrize(("said", "columns"), [("80", 80), ("20", 60), ("1000", 200), ("wide", None), ("", None)])
def test_how_much_room_there_is(monkeypatch, said, columns):
    monkeypatch.setenv("COLUMNS", said)
    assert room() == columns
    assert text_width(100) == min(100, columns or 100)


COMMANDS = [
    "solve example:resnet50 -b 2GiB -a rotor",
    "solve example:gpt2s -b 1GiB -a rotor",
    "show example:resnet50",
    "sweep example:resnet50 -a rotor --points 3",
    "algorithms",
    "algorithms rotor",
    "explain",
    "explain frontier-advancing",
    "compare example:resnet50 -a rotor,chen-greedy,periodic,chen-sqrt,revolve-chain -b 2GiB --jobs 1",
]


@pytest.mark.parametrize("columns", [60, 80, 126, 200])
@pytest.mark.parametrize("command", COMMANDS)
def test_output_fits_the_terminal(monkeypatch, capsys, command, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    main(command.split())
    lines = capsys.readouterr().out.split("\n")
    assert max(map(len, lines)) <= columns, max(lines, key=len)
