"""Drawn modules: views, splits, in-place operators, several outputs, shared parameters, draws, unused results."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import remat
import remat.torch
from remat.bridges.torch.measure import LiveStorages
from tests.torch.studies import emits_what_was_planned, equal

WIDTH, ROWS, CLOSE = 8, 64, 64


class Drawn(nn.Module):
    """A program: each step reads an existing tensor and adds one."""

    def __init__(self, program):
        super().__init__()
        self.program = program
        self.linear = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.norm = nn.ModuleList([nn.BatchNorm1d(WIDTH) for _ in range(2)])

    def forward(self, x):
        made = [self.linear[0](x)]
        for name, place, other in self.program:
            made.append(getattr(self, name)(made[-1 - place % len(made)], made[-1 - other % len(made)], other))
        return made[-1].square().mean() + sum(tensor.mean() for tensor in made)

    def layer(self, x, _, number):
        return self.linear[number % 3](x)

    def normal(self, x, _, number):
        return self.norm[number % 2](x)

    def in_place(self, x, *_):
        return torch.relu_(x + 1)

    def over(self, x, y, _):
        return (x * 2).add_(y).mul_(0.5)

    def smooth(self, x, *_):
        return functional.gelu(x)

    def drop(self, x, *_):
        return functional.dropout(x, 0.3)

    def noise(self, x, *_):
        return x + 0.1 * torch.randn_like(x)

    def halves(self, x, y, _):
        one, two = x.chunk(2, dim=1)
        return torch.cat([two, one], dim=1) * y

    def views(self, x, y, _):
        return x.t().reshape(WIDTH, ROWS).t().contiguous() + y.view(2, ROWS // 2, WIDTH).flatten(0, 1)

    def several(self, x, y, _):
        variance, mean = torch.var_mean(x, dim=1, keepdim=True)
        largest, _unused = y.topk(3, dim=1)
        return (x - mean) * variance + largest.sum(dim=1, keepdim=True)

    def unused(self, x, *_):
        torch.sin(x).sum()  # a draw that nobody reads would be removed by torch.compile itself
        return torch.tanh(x)

    def normed(self, x, *_):
        return functional.layer_norm(x, (WIDTH,)) + x[0]


NAMES = [name for name in vars(Drawn) if not name.startswith("_") and name != "forward"]
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=9)


def examine(program):
    torch._dynamo.reset()
    torch.manual_seed(1)
    module, x = Drawn(program), torch.randn(ROWS, WIDTH)
    start = copy.deepcopy(module.state_dict())
    captured = remat.torch.capture(module, x)
    instance = captured.instance()
    plans = [remat.solve(instance, algorithm="keep-all")]
    top, low = plans[0].peak_memory["memory"], plans[0].memory_bounds["memory"].size
    for share in (0.4, 0.15):
        budget = int(low + share * (top - low))
        plans.append(remat.solve(instance, algorithm="dag-auto", budget=budget, options={"iterations": 2}))
    plain = copy.deepcopy(module)
    torch.manual_seed(2)
    loss = plain(x)
    loss.backward()
    gradients = {name: tensor.grad for name, tensor in plain.named_parameters() if tensor.grad is not None}
    after = torch.rand(1)
    for plan in plans:
        if plan.columns is None:
            continue
        peak = plan.peak_memory["memory"]
        module.load_state_dict(start)
        torch.manual_seed(2)
        done = remat.torch.execute(captured, plan)
        assert torch.equal(done.loss, loss)
        assert equal(dict(done.gradients), gradients)
        assert equal(module.state_dict(), plain.state_dict())
        assert torch.equal(torch.rand(1), after), "as many numbers were drawn"
        assert abs(done.live_peak - peak) <= CLOSE
    compiled(module, x, start, captured, next(plan for plan in reversed(plans) if plan.columns is not None), gradients)


def compiled(module, x, start, captured, plan, gradients):
    """The two graphs of the smallest plan, through the compiler."""
    from remat.bridges.torch.graph_emission import emit
    from remat.bridges.torch.graphs import build, compile_boxed
    from remat.bridges.torch.interpreter import given_tensors

    runs = remat.torch.plan_of(captured, plan).runs
    emitted = emit(captured.joint, runs)
    forward, backward = map(compile_boxed, build(captured, emitted))
    module.load_state_dict(start)
    torch.manual_seed(2)
    given = [tensor.detach() for tensor in given_tensors(captured)]
    live = LiveStorages(given)
    with torch.no_grad(), live:
        returned = list(forward(list(given)))
        outputs = len(captured.recording.outputs)
        held, saved = returned[:outputs], returned[outputs:]
        del returned
        saved.append(torch.ones(()))
        made = backward(saved)
    assert not saved
    assert held[0].dim() == 0
    names = [source.name for source in captured.sources]
    found = {name: tensor for name, tensor in zip(names, made, strict=True) if tensor is not None}
    assert equal(found, gradients)
    assert live.peak <= plan.peak_memory["memory"] + CLOSE
    emits_what_was_planned(captured, runs, emitted)


COMMON = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],  # shrinking would compile for minutes
}


@settings(max_examples=5, **COMMON)
@given(STEPS)
def test_drawn_modules_are_planned_and_run(program):
    examine(program)


@pytest.mark.slow
@settings(max_examples=100, **COMMON)
@given(STEPS)
def test_many_drawn_modules(program):
    examine(program)
