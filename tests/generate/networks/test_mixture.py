from __future__ import annotations

from typing import Any

import pytest

import remat
from remat.generate.networks.mixture import PRESETS, mixture_step
from tests.generate.networks.test_transformer_step import made_of, phase_time, written
from tests.generate.test_dag import check_structure

TINY: dict[str, Any] = {
    "layers": 2,
    "hidden": 16,
    "heads": 4,
    "key_heads": 2,
    "sequence": 8,
    "vocabulary": 32,
    "feedforward": 24,
    "experts": 3,
    "chosen": 2,
}


def test_presets_have_the_published_parameters() -> None:
    model = PRESETS["mixtral-8x7b"]
    assert model.parameters == 46_702_792_704  # 47 billion, of which a token uses 13
    idle = model.layers * (model.experts - model.chosen) * 3 * model.hidden * model.feedforward
    assert round((model.parameters - idle) / 1e9) == 13
    made = mixture_step(parameters="host")
    assert sum(value["size"] for value in made["values"] if value["id"].startswith("W.")) == 2 * model.parameters


def test_flops_are_those_of_the_experts_that_tokens_use() -> None:
    model = PRESETS["mixtral-8x7b"]
    made = mixture_step(flops=1.0, bandwidth=1e300)
    idle = model.layers * (model.experts - model.chosen) * 3 * model.hidden * model.feedforward
    norms = (2 * model.layers + 1) * model.hidden
    matrices = model.parameters - idle - norms - model.vocabulary * model.hidden
    attention = 4 * model.sequence**2 * model.hidden * model.layers
    forward = 2 * model.sequence * matrices + attention
    assert phase_time(made, "forward") == pytest.approx(forward)
    assert phase_time(made, "backward") == pytest.approx(2 * forward + attention / 2)


@pytest.mark.parametrize(
    "mode", [{}, {"gradients": "accumulate"}, {"parameters": "static"}, {"parameters": "host"}, {"micro_batches": 2}]
)
def test_graphs_are_well_formed_training_steps(mode: dict[str, Any]) -> None:
    made = made_of(mixture_step(**TINY, **mode))
    check_structure(written(made))
    instance = remat.load(made)
    if mode.get("parameters") != "host":
        result = remat.solve(instance, algorithm="keep-all")
        assert result.makespan == pytest.approx(sum(task["time"] for task in made["tasks"]))


def test_experts_have_equal_shares_of_the_tokens() -> None:
    made = made_of(mixture_step(**TINY))
    tasks = {task["id"]: task for task in made["tasks"]}
    assert tasks["0.e1.gather"]["size"] == 2 * 6 * 16  # 8 * 2 / 3 tokens, rounded up
    assert tasks["0.e1.gate"]["size"] == 2 * 6 * 24
    assert tasks["0.e1.scatter"]["reads"] == ["0.e0.scatter", "0.e1.weigh", "0.indices"]
    assert tasks["0.e1.scatter"]["in_place"]
    assert tasks["0.residual2"]["reads"] == ["0.residual1", "0.e2.scatter"]
    assert tasks["0.top.dX"]["reads"][:3] == ["0.e2.weigh.dshares", "0.e1.weigh.dshares", "0.e0.weigh.dshares"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"experts": 4, "chosen": 5}, "chosen 5 are more than the 4 experts; give at most as many"),
        ({"experts": 0}, "experts must be at least 1, not 0"),
        ({"layers": 20_000}, "layers must be at most 10,000, not 20000"),
        ({"heads": 7}, "hidden 4096 is not a multiple of heads 7"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mixture_step(**parameters)
