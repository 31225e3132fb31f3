"""Reading matrices, and importing them, from files given to the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import remat
from remat.bridges.matrix_market.importing import import_matrix
from remat.errors import MissingExtraError

pytest.importorskip("scipy")

# Entries in the factor, and nodes, of the trees that were made with another minimum degree.
OTHERS = {"HB_bcsstk01": (489, 27), "bcspwr10": (27_938, 4947), "4elt2": (267_775, 6900)}


def matrices() -> Path:
    if "REMAT_DATA" not in os.environ:
        pytest.skip("REMAT_DATA is not set")
    return Path(os.environ["REMAT_DATA"]) / "matrices"


@pytest.mark.parametrize("name", OTHERS)
def test_minimum_degree_compares_with_others(name: str) -> None:
    made = import_matrix(matrices() / f"{name}.mtx.gz")
    entries, nodes = OTHERS[name]
    own = int(made["description"].split(" in the factor")[0].split()[-1])
    assert own < 1.05 * entries
    assert abs(len(made["parent"]) - nodes) < 0.05 * nodes
    assert remat.solve(made, algorithm="liu-postorder").makespan == sum(made["time"])


def test_scipy_may_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy.sparse", None)
    path = tmp_path / "x.mtx"
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n1 1 1\n1 1\n")
    assert import_matrix(path)["parent"] == [-1]
    with pytest.raises(MissingExtraError, match=r"remat\[sparse\]"):
        import_matrix(path, ordering="rcm")


def test_options_are_checked() -> None:
    for wrong, message in (
        ({"ordering": "metis"}, "'metis' is not one of"),
        ({"relax": -1}, "relax: -1 is negative"),
        ({"entry_bytes": 0}, "entry_bytes: an entry takes at least 1 byte"),
    ):
        with pytest.raises(remat.OptionError, match=message):
            import_matrix("x.mtx", **wrong)  # type: ignore[arg-type]
