"""Saved tensors of a layer, counted from its configuration and saved by PyTorch's autograd."""

import pytest

from benchmarks.config_activations import NAMES, compared

QUICK = ("mistral-7b", "gpt-neox-20b", "bart-base", "deepseek-v2-lite")
"""One of each rule: grouped queries, merged products with copied rows, an encoder's output, a router in fp32."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES]
)
def test_a_layer_saves_what_its_configuration_says(name):
    pytest.importorskip("transformers")
    counted, saved = compared(name, "fused")
    assert counted == pytest.approx(sum(saved.values()), rel=1e-3)
