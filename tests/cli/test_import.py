"""Test `remat import matrix`: output and refusals."""

from __future__ import annotations

import gzip
import sys
from typing import Any

import pytest

from remat.cli.import_ import ORDERINGS
from tests.cli.helpers import Run, Save

pytest.importorskip("scipy")

HEADER = "%%MatrixMarket matrix coordinate pattern symmetric\n"
ARROW = HEADER + "% an arrow\n4 4 7\n1 1\n2 2\n3 3\n4 4\n4 1\n4 2\n4 3\n"


def test_a_matrix_becomes_an_instance(run: Run, save: Save) -> None:
    made = run("import", "matrix", save(ARROW, "arrow.mtx"), "--ordering", "natural").document
    assert made["name"] == "arrow.natural.r0"
    assert made["source"] == "imported by: remat import matrix arrow.mtx --ordering natural"
    assert made["units"] == {"time": "unit", "memory": "unit"}
    assert made["parent"] == [3, 3, 3, -1]
    assert made["output_size"] == [1, 1, 1, 0]
    assert made["workspace"] == [3, 3, 3, 1]


def test_options_of_the_matrix_are_applied(run: Run, save: Save) -> None:
    packed = save(gzip.compress(ARROW.encode()), "arrow.mtx.gz")
    options = ("--ordering", "natural", "--symmetric", "--factors", "in-core", "--bytes", 8, "--relax", 4)
    made = run("import", "matrix", packed, *options, "--name", "bow").document
    assert (made["name"], made["units"]["memory"]) == ("bow", "B")
    assert (made["parent"], made["workspace"], made["static_memory"]) == ([-1], [80], 80)
    assert made["source"].endswith("arrow.mtx.gz --ordering natural --relax 4 --symmetric --factors in-core --bytes 8")


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_what_is_written_can_be_solved(run: Run, save: Save, tmp_path: Any, ordering: str) -> None:
    output = tmp_path / "tree.json.gz"
    assert run("import", "matrix", save(ARROW, "arrow.mtx"), "--ordering", ordering, "-o", output).code == 0
    assert run("solve", output).code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("1 2 3\n", "not a Matrix Market file"),
        (b"\x00\x01\x02", "not a Matrix Market file"),
        (HEADER, "no line with rows, columns and entries"),
        (HEADER + "2 2\n1 1\n", "no line with rows, columns and entries"),
        (HEADER + "3 4 1\n1 1\n", "the matrix is 3 x 4"),
        (HEADER + "0 0 0\n", "the matrix is empty"),
        (HEADER + "2 2 2\n1 1\n", "malformed Matrix Market file"),
        (HEADER + "2 2 1\n1 x\n", "malformed Matrix Market file"),
        (HEADER + "2 2 1\n3 1\n", "malformed Matrix Market file"),
        (HEADER + "2 2 1\n0 1\n", "malformed Matrix Market file"),
        (HEADER + "2 2 888888888888\n1 1\n", "888888888888 entries"),
        (HEADER + "88888888888 88888888888 1\n1 1\n", "order 88888888888"),
        (HEADER.replace("pattern", "complex") + "1 1 1\n1 1 1 0\n", "'complex' entries are not supported"),
        (HEADER.replace("symmetric", "hermitian") + "1 1 1\n1 1\n", "symmetry 'hermitian' is not one of"),
        (HEADER.replace("coordinate", "array") + "1 1\n1\n", "'array' layout has no sparse pattern"),
        (gzip.compress(ARROW.encode() * 100, mtime=0)[:60], "damaged gzip file"),
    ],
)
def test_bad_files_are_refused(run: Run, save: Save, content: str | bytes, message: str) -> None:
    run("import", "matrix", save(content, "bad.mtx")).assert_refused("bad.mtx: ", message)


def test_bad_arguments_are_refused(run: Run, save: Save, tmp_path: Any) -> None:
    arrow = save(ARROW, "arrow.mtx")
    run("import", "matrix", tmp_path / "none.mtx").assert_refused("cannot read matrix", "No such file")
    run("import", "matrix", tmp_path).assert_refused("Is a directory")
    run("import", "matrix", arrow, "-o", arrow).assert_refused("is also MTX")
    run("import", "matrix", arrow, "--ordering", "metis").assert_refused("metis")
    run("import", "matrix", arrow, "--bytes", 0).assert_refused("--bytes")
    run("import", "matrix", arrow, "--bytes", 2**62).assert_refused("above 2^62")
    run("import", "matrix").assert_refused("MTX")
    run("import", "graph").assert_refused("graph")


def test_help_lists_the_formats(run: Run) -> None:
    assert "matrix" in run("import").out
    assert "supernodes" in run("import", "matrix", "--help").out


def test_torch_needs_its_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("remat.bridges.torch")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    run("import", "torch", "train:make").assert_refused("remat.torch needs PyTorch: pip install 'remat[torch]'")
    run("fit", "torch", "train:make", "--budget", "1GB").assert_refused(
        "remat.torch needs PyTorch: pip install 'remat[torch]'"
    )


def test_jax_needs_its_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith(("remat.bridges.jax", "remat.jax"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "jax", None)
    run("import", "jax", "train:make").assert_refused("remat.jax needs JAX: pip install 'remat[jax]'")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "Needs: pip install 'remat[jax]'" in " ".join(run("import", "--help").out.split())
