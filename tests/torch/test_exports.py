"""Exported checkpointing, executed by PyTorch: the values of the model itself, at the stated peak."""

import copy

import pytest
import torch
from torch import nn

import remat
import remat.torch
from remat.bridges.checkpointing.exporting import export_policy
from remat.solving.verifying import examine
from tests.torch import models
from tests.torch.studies import WORK, equal
from tests.torch.test_blocks import resnet, step, transformer


def norms():
    """Blocks whose captured operators are those of eager PyTorch."""

    def block(a, b):
        first = [nn.Conv2d(a, b, 3, 1, 1), nn.BatchNorm2d(b), nn.SiLU()]
        return nn.Sequential(*first, nn.Conv2d(b, b, 3, 1, 1), nn.GELU())

    net = nn.Sequential(block(3, 8), *(block(8, 8) for _ in range(4)), nn.Sequential(nn.Flatten(), nn.Linear(512, 5)))
    return models.labelled(net, 32, 3, 8, 8)


def wide():
    made = (nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.Tanh()) for _ in range(6))
    return models.labelled(nn.Sequential(*made, nn.Linear(32, 5)), 512, 32)


def executed(text, module, names):
    space = {}
    exec(text, space)
    space["apply"]([module.get_submodule(name) for name in space["NAMES"]] if names else module)
    return space


@pytest.mark.parametrize(
    ("factory", "blocks"),
    [(transformer, "layers.*"), (resnet, "net.*"), (norms, "net.*"), (models.gpt2, "transformer.h.*")],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_torch_checkpoint_runs_within_the_stated_peak(factory, blocks):
    module, args, kwargs = models.make(factory)
    start = copy.deepcopy(module.state_dict())
    expected = step(copy.deepcopy(module), args, kwargs, start, 3)
    instance = remat.torch.chain(module, args, kwargs, blocks=blocks, repeats=1)
    kept = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
    plans = (remat.solve(instance, algorithm="rotor", budget=int(s * kept)) for s in (0.55, 0.75, 0.95, 0.98))
    plan = next(plan for plan in plans if plan.columns is not None)
    exported = export_policy(examine(instance, plan.to_dict()), "torch-checkpoint")
    space = executed(exported.text, module, True)
    assert space["SEGMENTS"]
    found = step(module, args, kwargs, start, 3)
    assert all(equal(*pair) for pair in zip(found[:3], expected[:3], strict=True))
    # A block that PyTorch's own graph runs need not keep its input, and checkpointing stops early.
    assert 0.96 * exported.peak <= found[3] <= exported.peak + 64
    assert found[3] < expected[3]


@pytest.mark.parametrize(("factory", "close"), [(norms, 0.001), (wide, 0.001), (models.vit, 0.1)])
@pytest.mark.parametrize("share", [0.6, 0.9])
def test_torch_sac_runs_at_the_stated_peak(factory, close, share):
    module, args, kwargs = models.make(factory)
    start = copy.deepcopy(module.state_dict())
    expected = step(copy.deepcopy(module), args, kwargs, start, 3)
    instance = remat.torch.capture(module, *args, **kwargs).instance()
    kept = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
    plan = remat.solve(instance, algorithm="dag-auto", budget=int(share * kept), options=WORK)
    exported = export_policy(examine(instance, plan.to_dict()), "torch-sac")
    executed(exported.text, module, False)
    found = step(module, args, kwargs, start, 3)
    assert all(equal(*pair) for pair in zip(found[:3], expected[:3], strict=True))
    assert found[3] == pytest.approx(exported.peak, rel=close)


def test_saved_results_in_front_of_an_operator_in_place_are_refused_by_pytorch():
    module, args, kwargs = models.make(models.conv)
    captured = remat.torch.capture(module, *args, **kwargs)
    instance = captured.instance()
    plan = remat.solve(instance, algorithm="keep-all")
    exported = export_policy(examine(instance, plan.to_dict()), "torch-sac")
    assert any("not in-place" in note for note in exported.notes)
    assert executed(exported.text, module, False)["BLOCKS"] == {}
    assert torch.isfinite(module(*args))
