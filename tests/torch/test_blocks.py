"""Blocks run along a chain's schedule in eager mode: as PyTorch's own step to the bit, at the verified peak."""

import copy
import json
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat
import remat.torch
from remat.bridges.torch.measure import LiveStorages
from remat.errors import OptionError
from tests.torch import models
from tests.torch.studies import equal

CLOSE = 64
SHARES = (None, 0.95, 0.85, 0.7, 0.55, 0.4, 0.3)


class Transformer(nn.Module):
    """Blocks with dropout between an embedding and a classifier, called with a mask and by name."""

    half = False

    def __init__(self, layers=5, width=32, dropout=0.1):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        made = (nn.TransformerEncoderLayer(width, 4, 64, dropout, batch_first=True) for _ in range(layers))
        self.layers = nn.ModuleList(made)
        self.last = nn.Linear(width, 50)

    def forward(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.half):
            hidden = self.embed(x)
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            for layer in self.layers:
                hidden = layer(hidden, src_mask=mask)
            logits = self.last(hidden)
        return functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())


class Half(Transformer):
    half = True


def transformer():
    return Transformer(), (torch.randint(50, (8, 24)), torch.randint(50, (8, 24))), {}


def half():
    return Half(), (torch.randint(50, (8, 24)), torch.randint(50, (8, 24))), {}


def resnet():
    module, args, kwargs = models.resnet50(batch=4, pixels=32, depths=(2, 2, 2), width=8, classes=10)
    net = list(module.net)
    module.net = nn.Sequential(nn.Sequential(*net[:4]), *net[4:-3], nn.Sequential(nn.Dropout(0.2), *net[-3:]))
    return module, args, kwargs


def convolutions():
    """Of equal blocks, so that schedules with little memory run some of them several times."""

    def block(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

    net = nn.Sequential(block(3, 8), *(block(8, 8) for _ in range(9)), nn.Sequential(nn.Flatten(), nn.Linear(512, 5)))
    return models.labelled(net, 16, 3, 8, 8)


class Recurrent(nn.LSTM):
    """Runs other kernels without gradients, whose results differ."""

    def forward(self, x):
        return super().forward(x)[0]


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Recurrent(16, 16, batch_first=True) for _ in range(4)])
        self.last = nn.Linear(16, 5)

    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.last(x[:, -1]), y)


def lstm():
    return Lstm(), (torch.randn(8, 12, 16), torch.randint(5, (8,))), {}


CASES = [
    (lstm, "layers.*"),
    (transformer, "layers.*"),
    (half, "layers.*"),
    (resnet, "net.*"),
    (convolutions, "net.*"),
    (models.mlp, "net.*"),
    (models.gpt2, "transformer.h.*"),
    (models.vit, "vit.layers.*"),
]


def step(module, args, kwargs, start, state):
    """Loss, gradients, buffers, the generator's state and the live peak of one step."""
    module.load_state_dict(start)
    module.zero_grad(set_to_none=True)
    torch.manual_seed(state)
    live = LiveStorages((*module.parameters(), *module.buffers(), *args, *kwargs.values()))
    with live:
        returned = module(*args, **kwargs)
        models.loss_of(returned).backward()
    gradients = {name: part.grad.clone() for name, part in module.named_parameters() if part.grad is not None}
    buffers = {name: part.clone() for name, part in module.named_buffers()}
    return {"loss": models.loss_of(returned).detach(), "random": torch.get_rng_state()}, gradients, buffers, live.peak


@pytest.mark.parametrize(("factory", "blocks"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_schedule_of_rotor_gives_what_pytorch_gives_at_the_verified_peak(factory, blocks):
    module, args, kwargs = models.make(factory)
    start = copy.deepcopy(module.state_dict())
    expected = step(copy.deepcopy(module), args, kwargs, start, 3)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    instance = remat.torch.chain(module, args, kwargs, blocks=blocks, repeats=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert equal(dict(module.state_dict()), start)
    assert all(part.grad is None for part in module.parameters())
    kept = remat.solve(instance, algorithm="keep-all")
    most, peaks = 0, set()
    for share in SHARES:
        budget = None if share is None else int(share * kept.peak_memory["memory"])
        plan = kept if share is None else remat.solve(instance, algorithm="rotor", budget=budget)
        if plan.columns is None:
            break
        planned = remat.torch.apply(module, plan, blocks=blocks)
        found = step(planned, args, kwargs, start, 3)
        assert all(equal(*pair) for pair in zip(found[:3], expected[:3], strict=True))
        peaks.add(plan.peak_memory["memory"])
        assert abs(found[3] - plan.peak_memory["memory"]) <= CLOSE
        most = max(most, len(plan.steps) - 2 * instance.length - 1)
    assert len(peaks) > 1
    assert most > (instance.length if factory is convolutions else 0)


@pytest.mark.parametrize(("factory", "blocks"), [CASES[1], CASES[4]], ids=["transformer", "convolutions"])
def test_with_gradients_of_earlier_steps_a_budget_covers_activations_alone(factory, blocks):
    module, args, kwargs = models.make(factory)
    instance = remat.torch.chain(module, args, kwargs, blocks=blocks, repeats=1, accumulate=True)
    assert all(part.grad is None for part in module.parameters())
    kept = remat.solve(instance, algorithm="keep-all")
    plan = remat.solve(instance, algorithm="rotor", budget="60%")
    for found in (kept, plan):
        planned = remat.torch.apply(module, found, blocks=blocks)
        models.loss_of(planned(*args, **kwargs)).backward()
        gradients = [part.grad for part in module.parameters()]
        live = LiveStorages((*module.parameters(), *module.buffers(), *args, *kwargs.values(), *gradients))
        with live:
            models.loss_of(planned(*args, **kwargs)).backward()
        assert all(part.grad is one for part, one in zip(module.parameters(), gradients, strict=True))
        assert abs(live.peak - found.peak_memory["memory"]) <= CLOSE
        module.zero_grad()


def test_a_chain_whose_gradients_dominate_warns():
    module, given = Chain(*(nn.Linear(64, 64) for _ in range(4))), [torch.randn(2, 64)]
    size = 4 * 4 * 64 * 65
    with pytest.warns(UserWarning, match=r"gradients of parameters take 65\.01 KiB") as caught:
        counted = remat.torch.chain(module, given, blocks="blocks.*", repeats=1)
    assert "accumulate=True" in str(caught[0].message)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        without = remat.torch.chain(module, given, blocks="blocks.*", repeats=1, accumulate=True)
        remat.torch.chain(module, [torch.randn(2000, 64)], blocks="blocks.*", repeats=1)
    most, less = (remat.solve(one, algorithm="keep-all").peak_memory["memory"] for one in (counted, without))
    assert less <= most - size // 2
    away = {"host": "1GB", "optimizer": "adamw"}
    with pytest.raises(OptionError, match="accumulate: gradients of earlier steps are at the host"):
        remat.torch.chain(module, given, blocks="blocks.*", away=away, accumulate=True)


class Chain(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


class Counter(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Skip(Chain):
    def forward(self, x):
        return super().forward(self.blocks[0](x))


class Scaled(Chain):
    def forward(self, x):
        for block in self.blocks:
            x = 2 * block(x)
        return x.square().mean()


class Pair(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y, y + 1


def linear():
    return nn.Linear(8, 8)


@pytest.mark.parametrize(
    ("module", "blocks", "message"),
    [
        (Chain(linear(), Counter()), "blocks.*", r"block blocks\.1 writes its buffer calls whenever it runs"),
        (Chain(linear(), nn.ReLU(inplace=True)), "blocks.*", r"blocks\.1 writes into its input"),
        (Chain(linear(), Pair(8, 8)), "blocks.*", r"blocks\.1 returns 2 tensors"),
        (Skip(linear(), linear()), "blocks.*", r"calls block blocks\.0 where blocks\.1 is the next"),
        (Scaled(linear(), linear()), "blocks.*", r"blocks\.1 does not take the output of the block before it"),
        (Chain(linear(), linear()), "layers.*", r"no submodule is named 'layers\.\*'; there are blocks, blocks\.\*"),
        (
            Chain(nn.Sequential(linear())),
            ["blocks.*", "blocks.*.*"],
            r"block blocks\.0\.0 is inside of block blocks\.0",
        ),
        (nn.Sequential(linear(), linear()), "*", "returns no scalar"),
    ],
)
def test_modules_that_are_no_chain_of_blocks_are_refused_in_one_line(module, blocks, message):
    with pytest.raises(remat.torch.TorchError, match=message) as caught:
        remat.torch.chain(module, [torch.randn(4, 8)], blocks=blocks)
    assert "\n" not in str(caught.value)
    assert not any("forward" in part.__dict__ for part in module.modules())


def made(length=4):
    torch.manual_seed(0)
    module = Chain(*(nn.Sequential(linear(), nn.Tanh()) for _ in range(length)))
    instance = remat.torch.chain(module, [torch.randn(4, 8)], blocks="blocks.*", repeats=1)
    return module, instance


def test_schedules_that_do_not_fit_the_blocks_are_refused(tmp_path):
    module, instance = made()
    plan = remat.solve(instance, algorithm="keep-all")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.to_dict()))
    planned = remat.torch.apply(module, path, blocks="blocks.*")
    assert set(planned.state_dict()) == set(module.state_dict())
    with pytest.raises(remat.torch.TorchError, match=r"does not go with 3 blocks: it runs 'F"):
        remat.torch.apply(module, {"steps": [{"run": "F4"}]}, blocks=["blocks.0", "blocks.1", "blocks.2"])
    with pytest.raises(remat.torch.TorchError, match="there is no schedule: infeasible"):
        remat.torch.apply(module, remat.solve(instance, algorithm="rotor", budget=1), blocks="blocks.*")


def test_a_step_runs_backward_once_and_without_gradients_there_is_no_plan():
    module, instance = made()
    planned = remat.torch.apply(module, remat.solve(instance, algorithm="keep-all"), blocks="blocks.*")
    x = torch.randn(4, 8)
    with torch.no_grad():
        assert torch.equal(planned(x), module(x))
    loss = planned(x)
    loss.backward(retain_graph=True)
    with pytest.raises(remat.torch.TorchError, match="has run backward before"):
        loss.backward()
    first, second = planned(x), planned(x)  # two steps at once have nothing in common
    module.zero_grad()
    (first + second).backward()
    doubled = [part.grad for part in module.parameters()]
    module.zero_grad()
    (module(x) + module(x)).backward()
    assert all(torch.equal(one, part.grad) for one, part in zip(doubled, module.parameters(), strict=True))


def test_derivatives_that_do_not_reach_the_blocks_are_refused():
    module, instance = made()
    planned = remat.torch.apply(module, remat.solve(instance, algorithm="keep-all"), blocks="blocks.*")
    x = torch.randn(4, 8, requires_grad=True)
    with pytest.raises(remat.torch.TorchError, match=r"come by backward\(\) without inputs"):
        torch.autograd.grad(planned(x), [x])
    planned(x).backward(create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        x.grad.sum().backward()
