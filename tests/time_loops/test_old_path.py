"""The old path of `remat.time_loops` works for one release, although its name is a builder's now."""

import subprocess
import sys

import pytest

import remat
from remat import time_loops

LOOP = """
import remat.adjoint
assert remat.adjoint(3).length == 3
"""


def test_names_of_the_old_path_warn():
    import remat.adjoint as old

    assert old.run is time_loops.run  # new here, and here to stay
    for name in set(time_loops.__all__) - {"run"}:
        with pytest.warns(DeprecationWarning, match=f"remat.adjoint.{name} has moved"):
            assert getattr(old, name) is getattr(time_loops, name)
    with pytest.raises(AttributeError, match="nothing"):
        _ = old.nothing
    assert remat.adjoint(3).length == 3


def test_the_builder_works_beside_the_old_path():
    answer = subprocess.run([sys.executable, "-c", LOOP], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
