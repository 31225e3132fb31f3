"""Test seismic loops: hand-computed figures and published sizes."""

from __future__ import annotations

from typing import Any

import pytest

import remat
from remat.generate import generate


def test_figures_by_hand() -> None:
    """A cube of 2 points with 1 absorbing point on each side has 64; a wave of 1 m/s takes 10 steps of 0.1 s."""
    small: dict[str, Any] = {
        "nx": 2,
        "ny": 2,
        "nz": 2,
        "boundary": 1,
        "spacing": 1,
        "velocity": 1,
        "duration": 1,
        "courant": 0.1,
    }
    made = generate("adjoint", "seismic", **small, order=4, flops=1.0, bandwidth=1e300)
    assert (made["steps"], made["state_size"]) == (10, 2 * 64 * 4)
    assert (made["forward_time"], made["backward_time"]) == (32 * 64, 36 * 64)
    slow = generate("adjoint", "seismic", **small, flops=1e300, bandwidth=1.0, storage="ram:slots=2")
    assert (slow["forward_time"], slow["backward_time"]) == (5 * 64 * 4, 9 * 64 * 4)
    result = remat.solve(slow, algorithm="revolve")
    assert result.peak_memory["ram"] == 2 * made["state_size"]


def test_defaults_are_the_overthrust_model() -> None:
    """801 x 801 x 187 points, 40 absorbing ones on each side, 4 s: two fields of 0.83 GB, and 2,526 steps."""
    made = generate("adjoint", "seismic")
    assert made["steps"] == 2526
    assert made["state_size"] == 2 * 4 * 881 * 881 * 267 == 1_657_879_896


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"nx": 0}, "nx must be at least 1, not 0"),
        ({"spacing": 0}, "spacing must be"),
        ({"order": 1}, "order must be at least 2, not 1"),
        ({"duration": 1e300, "velocity": 1e300}, "is the number of steps"),
        ({"courant": 1e-300, "spacing": 1e-300}, "is the number of steps"),
        ({"nx": 10**15}, "make the grid or the duration smaller"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate("adjoint", "seismic", **parameters)
