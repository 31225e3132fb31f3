"""Test recurrent layers as loops: hand-computed figures, and results of their paper's algorithms."""

from __future__ import annotations

import pytest

import remat
from remat.generate import generate


def test_figures_by_hand() -> None:
    """Five tokens, 3 units, 2 sequences: 6 entries a state of one activation, in 4 bytes."""
    made = generate("adjoint", "recurrent", steps=5, hidden=3, batch=2, flops=1.0, bandwidth=1e300)
    assert (made["steps"], made["state_size"], made["tape_size"]) == (5, 2 * 6 * 4, 5 * 6 * 4)
    assert made["forward_time"] == 16 * 2 * 3 * 3
    assert made["backward_time"] == 2 * made["forward_time"]
    plain = generate("adjoint", "recurrent", cell="rnn", steps=5, hidden=3, batch=2, flops=1e300, bandwidth=1.0)
    assert (plain["state_size"], plain["tape_size"]) == (24, 24)
    # 3 * 6 weights and 3 biases; the input, the states before and after, and the tape of 6 entries each.
    assert plain["forward_time"] == pytest.approx(4 * (21 + 4 * 6))


def test_internal_states_of_five_steps() -> None:
    """Memory for all tapes avoids recomputation; memory for states alone recomputes each tape but the last."""
    made = generate("adjoint", "recurrent", cell="rnn", steps=5, hidden=4, batch=1, flops=1.0, bandwidth=1e300)
    times = {
        name: remat.solve(made, algorithm=name).makespan for name in ("bptt-hsm", "bptt-ism", "bptt-msm", "store-all")
    }
    step = made["forward_time"]
    assert times["bptt-msm"] == times["bptt-ism"] == pytest.approx(3 * 5 * step)
    assert times["bptt-hsm"] == pytest.approx(3 * 5 * step + 4 * step)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cell": "gru"}, "cell must be one of lstm, rnn, not 'gru'"),
        ({"hidden": 0}, "hidden must be at least 1, not 0"),
        ({"batch": 2**60}, "make the batch or the sequence smaller"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate("adjoint", "recurrent", **parameters)
