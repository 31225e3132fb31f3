"""The storages of real kernels are those of the recording, where the trace alone shows too little."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat.torch
from remat.bridges.torch.interpreter import Interpreter, given_tensors
from remat.bridges.torch.plans import Event
from tests.torch import models


class Sizes(Interpreter):
    """Compares each result with what was recorded."""

    def __init__(self, captured):
        super().__init__(captured, given_tensors(captured))
        self.compared = 0

    def _call(self, name):
        super()._call(name)
        joint = self.captured.joint
        for made in joint.items.get(name, ()) if joint.nodes[name].several else (name,):
            for held in joint.nodes[made].tensors:
                recorded = self.captured.recording.storages[held.storage]
                assert self.there[made].untyped_storage().nbytes() == recorded, (joint.nodes[name].operator, made)
                self.compared += 1


class Ends(nn.Module):
    def __init__(self, end):
        super().__init__()
        self.linear, self.end = nn.Linear(8, 8), end

    def forward(self, x, y):
        return self.end(torch.sigmoid(self.linear(x)), y)


def pointwise(name):
    return lambda p, y, reduction: getattr(functional, name)(p, y, reduction=reduction)


LOSSES = {
    **{
        name: pointwise(name)
        for name in (
            "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss",
            "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss",
        )
    },
    "cross entropy": lambda p, y, reduction: functional.cross_entropy(p, y.argmax(1), reduction=reduction),
    "margin": lambda p, y, reduction: functional.multi_margin_loss(p, y.argmax(1), reduction=reduction),
    "weighted": lambda p, y, reduction: functional.binary_cross_entropy(p, y, y.detach(), reduction=reduction),
}  # fmt: skip
OTHERS = {
    "irfft": lambda p, _: torch.fft.irfft(torch.fft.rfft(p)).std(),
    "columns": lambda p, _: functional.unfold(p[None, None], 2).mean(),
    "rows": lambda p, _: functional.embedding_bag(torch.tensor([[1, 2], [3, 4]]), p).mean(),
    "part": lambda p, y: torch.cat([p[:, 1:].clone().copy_(y[:, 1:]), p], 1).std(),
    "statistics": lambda p, _: functional.instance_norm(p[None]).std() + p.logsumexp(1).sum(),
    "selection": lambda p, _: p.sort(1)[0].kthvalue(2)[0].sum() + p.amax(1).median(),
    "images": lambda p, _: functional.interpolate(p[None, None], scale_factor=2.0, mode="bilinear").mean(),
    "pools": lambda p, _: functional.max_pool2d(p[None, None], 2).mean(),
}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_kernels_of_losses_equal_pytorch(reduction):
    def every(p, y):
        return sum(loss(p, y, reduction) for loss in LOSSES.values())

    compare(Ends(every), torch.randn(16, 8), torch.rand(16, 8))


def test_kernels_of_operators_equal_pytorch():
    compare(Ends(lambda p, y: sum(one(p, y) for one in OTHERS.values())), torch.randn(16, 8), torch.rand(16, 8))


@pytest.mark.parametrize("factory", [models.conv, models.attention])
def test_kernels_of_networks_equal_pytorch(factory):
    module, args, _ = models.make(factory)
    compare(module, *args)


def compare(module, *args):
    captured = remat.torch.capture(module, *args)
    sizes = Sizes(captured)
    sizes.run([Event(task.name) for task in captured.joint.tasks.values() if not task.from_mask])
    assert sizes.compared > 5
