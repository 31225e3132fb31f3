from __future__ import annotations

from typing import Any

import pytest

import remat
from remat.generate.networks.lstm import lstm
from tests.generate.networks.test_transformer_step import written
from tests.generate.test_dag import check_structure

TINY = {"layers": 2, "hidden": 4, "vocabulary": 16, "steps": 3, "batch": 2}


@pytest.mark.parametrize(
    ("preset", "parameters", "millions"),
    # Zaremba et al. 2014 count in millions; without biases of the second matrices there are 19,775,200 and 66,022,000.
    [("medium", 19_780_400, 20), ("large", 66_034_000, 66)],
)
def test_presets_have_the_published_parameters(preset: str, parameters: int, millions: int) -> None:
    made = lstm(preset=preset, steps=2)
    assert made["static_memory"] == 4 * parameters
    assert round(parameters / 1e6) == millions
    kept = {value for value in made["outputs"] if value != "loss"}
    assert sum(task["size"] for task in made["tasks"] if task["id"] in kept) == 4 * parameters


@pytest.mark.parametrize("steps", [1, 5])
def test_flops_are_the_published_formula(steps: int) -> None:
    made = lstm(layers=3, hidden=32, vocabulary=100, steps=steps, batch=7, flops=1.0, bandwidth=1e300)
    forward, backward = (
        sum(task["time"] for task in made["tasks"] if task["phase"] == phase) for phase in ("forward", "backward")
    )
    # The first step's state is zero: it has no product with the recurrent matrix.
    products = 3 * (2 * steps - 1)
    assert forward == pytest.approx(7 * (8 * 32**2 * products + 2 * 32 * 100 * steps))
    assert backward == pytest.approx(2 * forward)


@pytest.mark.parametrize("more", [{}, {"dropout": False}, {"keep_gradients": False}, {"layers": 1, "steps": 1}])
def test_graphs_are_well_formed_training_steps(more: dict[str, Any]) -> None:
    made = lstm(**{**TINY, **more})
    check_structure(written(made))
    result = remat.solve(remat.load(made), algorithm="keep-all")
    assert result.makespan == pytest.approx(sum(task["time"] for task in made["tasks"]))


def test_states_are_saved_step_by_step() -> None:
    peaks = []
    for steps in (10, 20, 30):
        made = lstm(hidden=8, vocabulary=10, steps=steps, batch=4, layers=1, dropout=False)
        peaks.append(max(remat.solve(remat.load(made), algorithm="keep-all").peak_memory.values()))
    # Embedding, four gates, cell and output of 8 x 4 entries of 4 bytes, ids of 8, logarithms of 10, losses.
    each = 4 * (1 + 4 + 1 + 1) * 8 * 4 + 8 * 4 + 4 * 10 * 4
    assert peaks[1] - peaks[0] == peaks[2] - peaks[1] == 10 * each


def test_a_step_by_hand() -> None:
    tasks = {task["id"]: task for task in lstm(**TINY)["tasks"]}
    assert tasks["1.0.in"]["reads"] == ["1.dropout0.out"]
    assert tasks["1.0.back"]["reads"] == ["0.0.h"]
    assert tasks["1.0.cell"]["reads"] == ["1.0.in", "1.0.back", "0.0.c"]
    assert tasks["1.0.cell"]["writes"] == ["1.0.h", "1.0.c", "1.0.gates"]
    assert "0.0.back" not in tasks
    assert tasks["1.1.h.sum"]["reads"] == ["1.dropout2.dX", "2.1.back.dX"]
    assert tasks["1.1.cell.dX"]["reads"] == ["1.1.h.sum", "1.1.gates", "1.1.c", "2.1.cell.d.c", "0.1.c"]
    assert tasks["1.1.in.dW"]["reads"] == ["1.1.d.gates", "1.dropout1.out", "2.1.in.dW"]
    assert tasks["1.1.in.dW"]["in_place"]
    assert "in_place" not in tasks["2.1.in.dW"]
    assert "0.1.back.dW" not in tasks


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"steps": 10**5}, "steps must be at most 50,000, not 100000"),
        ({"preset": "small"}, "preset must be one of medium, large, not 'small'"),
        ({"batch": 10**16}, "make the batch or the network smaller, or take fewer steps"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lstm(**parameters)
