"""The optimizer's step as a phase of a training step: the allocator's peak over whole steps is the split's total."""

import json
import random
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch
from torch import nn

import remat.torch
from remat.bridges.torch.measure import allocator_peak
from remat.bridges.torch.optimizers import read_optimizer
from remat.bridges.torch.planning import make_plan
from remat.bridges.torch.plans import events_of
from remat.bridges.torch.step_memory import gradient_values
from remat.generate.optimizers import FAMILIES, NAMES
from tests.torch.models import Loss, Net

BEHAVIOURS = {"foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}
MAKERS = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    "adafactor": (torch.optim.Adafactor, {}),
}
if find_spec("bitsandbytes") is not None:
    MAKERS["adam8"] = (lambda parameters: import_module("bitsandbytes").optim.Adam8bit(parameters), {})
    MAKERS["adamw8"] = (lambda parameters: import_module("bitsandbytes").optim.AdamW8bit(parameters), {})
SPELLED = [
    *MAKERS,
    *(f"{name}-{step}" for name in MAKERS if not FAMILIES[name].eight_bit for step in FAMILIES[name].steps),
]


def made(name, parameters):
    """The optimizer of PyTorch with this name."""
    family, _, step = name.partition("-")
    maker, given = MAKERS[family]
    return maker(parameters, **given, **BEHAVIOURS.get(step, {}))


def drawn(seed):
    """A network with parameters of very different sizes, some of them frozen, and a small or a large batch."""
    draw, batch = random.Random(seed), (16, 900)[seed % 2]
    widths = [draw.choice((24, 150, 400)) for _ in range(draw.randint(2, 4))]
    layers = []
    for first, second in zip((100, *widths), (*widths, 10), strict=True):
        layers += [nn.Linear(first, second, bias=draw.random() < 0.7), nn.GELU()]
    module = Loss(nn.Sequential(nn.Linear(100, 100), *layers))
    if draw.random() < 0.5:
        module.net[0].requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    return module, (torch.randn(batch, 100, generator=generator), torch.randint(10, (batch,), generator=generator))


@pytest.fixture(scope="module", params=range(2))
def network(request):
    torch._dynamo.reset()
    module, args = drawn(request.param)
    captured = remat.torch.capture(module, *args)
    planned = remat.torch.compile(module)
    planned(*args).backward()
    module.zero_grad()
    return module, planned, args, captured


def three_steps(planned, args, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        loss = planned(*args)
        loss.backward()
        optimizer.step()
        del loss
    return optimizer


@pytest.mark.parametrize("name", SPELLED)
def test_the_peak_of_three_steps_is_the_total(network, name):
    module, planned, args, captured = network
    plan = make_plan(captured, remat.torch.Choices(optimizer=name))
    held = sum(plan.split[kind] for kind in ("parameters", "inputs"))
    _, measured = allocator_peak(lambda: three_steps(planned, args, made(name, module.parameters())))
    module.zero_grad()
    assert plan.whole_peak == max(sum(plan.split.values()), sum(plan.step.values()))
    assert measured + held == pytest.approx(plan.whole_peak, rel=0.01)


def test_garbage_of_an_earlier_measurement_does_not_lower_the_peak():
    """An optimizer is part of a reference cycle: the collector may find it during the next measurement."""

    def leave():
        cycle = [torch.empty(1 << 20)]
        cycle.append(cycle)

    def make():
        for _ in range(20_000):
            cycle = []
            cycle.append(cycle)
        return torch.empty(1 << 16)

    allocator_peak(leave)
    _, peak = allocator_peak(make)
    assert peak == 4 << 16


@pytest.mark.parametrize("size", [torch.float32, torch.bfloat16], ids=str)
def test_states_of_eight_bits(size):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    module = nn.Sequential(nn.Linear(100, 400), nn.Linear(400, 300, bias=False), nn.Linear(300, 1)).to(size)
    captured = remat.torch.capture(Mean(module), torch.randn(8, 100, dtype=size))
    plan = make_plan(captured, remat.torch.Choices(optimizer="adamw8"))
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer = bitsandbytes.optim.AdamW8bit(module.parameters())
    optimizer.step()
    kept = {
        t.untyped_storage().data_ptr(): t.nbytes
        for s in optimizer.state.values()
        for t in s.values()
        if torch.is_tensor(t)
    }
    assert plan.split["optimizer"] == sum(kept.values())
    _, taken = allocator_peak(optimizer.step)
    assert taken == pytest.approx(plan.step["temporaries"], abs=64)
    assert plan.optimizer == "adamw8-loop"


class Mean(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x).square().mean()


def test_the_plain_name_is_the_default_of_pytorch():
    """As `torch.optim` decides, which asks for the type of the device."""
    default = import_module("torch.optim.optimizer")._default_to_fused_or_foreach

    class On(nn.Parameter):
        """A parameter that says that it is on another device."""

        where = "cpu"

        @property
        def device(self):
            return torch.device(self.where)

    for device in ("cpu", "cuda", "xpu", "mps"):
        parameter = On(torch.ones(1))
        parameter.where = device
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(import_module("torch.optim.optimizer"), "_foreach_supported_types", [On])
            fused, foreach = default([parameter], differentiable=False)
        right = "fused" if fused else "foreach" if foreach else "loop"
        for name in ("adam", "adamw", "sgd"):
            assert read_optimizer(name).called(device) == f"{name}-{right}"
        assert read_optimizer("adafactor").called(device) == "adafactor-loop"


def test_a_budget_below_the_step_is_refused_before_anything_is_solved(monkeypatch):
    module, args = drawn(0)
    captured = remat.torch.capture(module, *args)
    whole = {step: make_plan(captured, remat.torch.Choices(optimizer=f"adamw-{step}")) for step in ("foreach", "fused")}
    budget = whole["fused"].whole_peak
    assert whole["foreach"].step_peak > budget
    assert make_plan(captured, remat.torch.Choices(optimizer="adamw-fused", budget=budget)).whole_peak == budget
    for asked in (budget, f"{100 * budget / whole['foreach'].peak:.3f}%"):
        with pytest.raises(
            remat.torch.TooSmallError, match=r"step\(\) of adamw-foreach takes .*; adamw-fused takes .* and fits\Z"
        ) as caught:
            make_plan(captured, remat.torch.Choices(optimizer="adamw-foreach", budget=asked))
        assert caught.value.proved
    monkeypatch.setattr("remat.bridges.torch.planning.solve", None)
    with pytest.raises(remat.torch.TooSmallError, match="recomputation does not reduce this"):
        make_plan(captured, remat.torch.Choices(optimizer="adamw-foreach", budget=budget))


def test_the_step_is_saved_with_the_plan(tmp_path):
    module, x, path = Net(), torch.randn(64, 8), tmp_path / "plan.json"
    planned = remat.torch.compile(module, budget="100%", optimizer="adamw-fused")
    planned(x).backward()
    plan = planned.plan
    assert "optimizer.step() of adamw-fused takes" in plan.summary
    plan.save(path)
    read = remat.torch.load_plan(remat.torch.capture(module, x), path)
    assert (read.step, read.optimizer, read.whole_peak) == (plan.step, plan.optimizer, plan.whole_peak)
    document = json.loads(path.read_text())
    del document["optimizer_step"]  # as earlier releases wrote it
    path.write_text(json.dumps(document))
    assert remat.torch.load_plan(remat.torch.capture(module, x), path).step_peak == 0


def test_gradients_have_a_row():
    """Gradients that are resident at the peak: none before the backward, all at its end."""
    module, args = drawn(2)
    captured = remat.torch.capture(module, *args)
    plan = make_plan(captured, remat.torch.Choices(optimizer="sgd"))
    events = events_of(captured, plan.schedule)
    sizes, there, seen = captured.joint.values, set(), []
    for event in events:
        there |= set(captured.joint.tasks[event.task].writes) if event.task is not None else set()
        held = sum(sizes[value] for value in there)
        seen.append((held, sum(sizes[value] for value in there & gradient_values(captured))))
        there -= set(event.drop)
    held, gradients = max(seen, key=lambda entry: entry[0])
    assert (plan.peak - plan.split["parameters"] - plan.split["inputs"], plan.split["gradients"]) == (held, gradients)
    assert 0 < gradients <= plan.step["gradients"]
    assert plan.step["gradients"] == sum(p.nbytes for p in module.parameters() if p.requires_grad)
    assert sum(plan.split.values()) == plan.peak
    again = make_plan(captured, remat.torch.Choices(optimizer="sgd", accumulate=True))
    assert again.split["accumulated"] == again.step["gradients"] == plan.step["gradients"]


def test_names_that_are_refused():
    for name in ("adamw-", "adamw-fast", "adafactor-fused", "adam-foreach-fused", "lion"):
        with pytest.raises(remat.OptionError, match=f"there is no '{name}'; known are"):
            read_optimizer(name)
    assert {read_optimizer(name).named.family for name in NAMES} == set(NAMES)
