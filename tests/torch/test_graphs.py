"""Steps that are not one graph of fixed sizes: several graphs, sizes that change, and what is counted of each."""

import copy
import json
import warnings

import pytest
import torch
from torch import nn

import remat
import remat.torch
from remat.bridges.torch.measure import LiveStorages
from remat.bridges.torch.optimizers import Optimizer, read_optimizer
from remat.bridges.torch.planning import make_plan
from tests.torch.models import Net
from tests.torch.studies import WORK, equal, step_bytes


class Deep(nn.Module):
    def __init__(self, breaks=0):
        super().__init__()
        self.breaks = breaks
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))

    def forward(self, x):
        x = self.run(x, self.layers[:3])
        if self.breaks:
            torch._dynamo.graph_break()
        return self.run(x, self.layers[3:]).square().mean()

    def run(self, x, layers):
        for layer in layers:
            x = torch.tanh(layer(x))
        return x


def gradients(module, call, x):
    module.zero_grad()
    call(x).backward()
    return {name: tensor.grad.clone() for name, tensor in module.named_parameters()}


def planner(budget, **more):
    return remat.torch.backend(budget, algorithm="dag-auto", options=WORK, **more)


class Branching(Deep):
    """Three graphs, since the branches depend on data."""

    def forward(self, x):
        x = self.part(x, self.layers[:2])
        x = self.part(x, self.layers[2:4])
        return self.run(torch.sin(x), self.layers[4:]).square().mean()

    def part(self, x, layers):
        x = self.run(torch.sin(x), layers)
        return x if x.sum() < 1e9 else 2 * x


def test_one_budget_is_for_all_graphs_of_a_step():
    """The first step runs with little memory; the second is planned as a whole."""
    torch.manual_seed(0)
    module = Branching()
    plain = copy.deepcopy(module)
    planned = remat.torch.compile(module, "75%", algorithm="dag-auto", options=WORK)
    x = torch.randn(400, 16)
    with pytest.warns(UserWarning, match=r"test_graphs\.py:\d+\): .* several graphs within one budget"):
        assert equal(gradients(module, planned, x), gradients(plain, plain, x))
    assert planned.plan is None
    assert equal(gradients(module, planned, x), gradients(plain, plain, x))
    plan = planned.plan
    assert plan.overhead > 0
    module.zero_grad()
    live = LiveStorages([*module.parameters(), x])
    with live:
        planned(x).backward()
    assert live.peak <= step_bytes(plan) + 64
    assert plan.peak == sum(plan.split.values())
    assert planned.plan is plan, "a step like the last one costs no plan"
    other = remat.torch.compile(copy.deepcopy(plain), int(plan.peak * 0.5), algorithm="dag-auto", options=WORK)
    with pytest.raises(
        remat.torch.TorchError, match=r"no schedule found within \d+: graph \d of the step, which begins at"
    ):
        other(x)


class Logits(Deep):
    """The caller computes the loss."""

    def forward(self, x):
        return self.run(x, self.layers)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("module", [Logits, Branching])
def test_costs_are_measured_for_graphs_without_a_loss(module, dynamic):
    torch.manual_seed(0)
    net = module()
    plain = copy.deepcopy(net)
    compiler = planner("90%", costs="measure")
    compiled = torch.compile(net, backend=compiler, dynamic=dynamic)
    for rows in (200, 200, 120, 120, 200):
        x, state = torch.randn(rows, 16), torch.get_rng_state()
        obtained = gradients(net, lambda given: compiled(given).sum(), x)
        assert torch.equal(torch.get_rng_state(), state)
        assert equal(obtained, gradients(plain, lambda given: plain(given).sum(), x))
    assert compiler.plans


def test_two_forwards_before_their_backwards_are_one_step():
    torch.manual_seed(0)
    module = Branching()
    plain = copy.deepcopy(module)
    compiler = planner("90%")
    compiled = torch.compile(module, backend=compiler, dynamic=False)
    x, y = torch.randn(200, 16), torch.randn(200, 16)

    def both(call, net):
        net.zero_grad()
        (call(x) * call(y)).backward()
        return {name: tensor.grad.clone() for name, tensor in net.named_parameters()}

    for _ in range(3):
        assert equal(both(compiled, module), both(plain, plain))
    assert len(compiler.plans[-1].fingerprint.split()) == 6


def test_evaluation_between_steps_changes_nothing():
    module = Branching()
    planned = remat.torch.compile(module, "90%", algorithm="dag-auto", options=WORK)
    x = torch.randn(200, 16)
    for _ in range(3):
        gradients(module, planned, x)
        with torch.no_grad():
            planned(x)
        planned(x)  # a loss that is thrown away
    assert len(planned.plan.fingerprint.split()) == 3


def test_a_graph_that_is_compiled_again_is_no_second_one():
    module, x = Deep(), torch.randn(6, 16)
    planned = remat.torch.compile(module, "1MB", algorithm="dag-auto", options=WORK)
    first = gradients(module, planned, x)
    torch._dynamo.reset()
    assert equal(gradients(module, planned, x), first)


def test_each_graph_has_a_budget_of_its_own():
    module, x = Deep(breaks=1), torch.randn(256, 16)
    other, right = copy.deepcopy(module), gradients(module, module, x)
    planned = remat.torch.compile(module, ["1MB", "76kB"], algorithm="dag-auto", options=WORK)
    assert equal(gradients(module, planned, x), right)
    compiler = planner(["1MB", "76kB"])
    compiled = torch.compile(other, backend=compiler, dynamic=False)
    compiled(x).backward()
    one, two = compiler.plans
    assert len(one.runs) == len(set(one.runs))
    assert two.peak <= 76_000
    assert len(two.runs) > len(set(two.runs))
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"training graph 2 in one step.*, and 1 budgets: give one each"):
        torch.compile(other, backend=planner(["1MB"]), dynamic=False)(x)
    with pytest.raises(remat.torch.TorchError, match="there are 2 budgets; here is one training graph"):
        make_plan(remat.torch.capture(Net(), x[:, :8]), remat.torch.Choices(budget=["1MB", "1MB"]))


def test_sizes_that_change_share_orders():
    module = Deep()
    whole = remat.torch.compile(copy.deepcopy(module))
    whole(torch.randn(256, 16)).backward()
    compiler = planner(int(whole.plan.peak * 0.7))
    torch._dynamo.reset()
    compiled = torch.compile(module, backend=compiler, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (256, 240, 256, 64):
            x = torch.randn(size, 16)
            assert equal(gradients(module, compiled, x), gradients(module, module, x))
    first, second, third = compiler.plans  # one a shape
    assert first.runs == second.runs
    assert len(first.runs) > len(set(first.runs))
    assert len(third.runs) == len(set(third.runs)), "it fits without recomputation"
    assert first.peak > second.peak > third.peak
    with pytest.warns(UserWarning, match=r"with inputs of \[300, 16\] no known order .* largest sizes first"):
        compiled(torch.randn(300, 16)).backward()
    assert compiler.plans[-1].peak <= int(whole.plan.peak * 0.7)
    with torch.no_grad():
        assert torch.equal(compiled(x), module(x))


def test_shapes_that_pytorch_finds_to_change():
    """Without `dynamic=False` the first graph has fixed sizes, and the next has not."""
    module, compiler = Deep(), planner("1MB")
    compiled = torch.compile(module, backend=compiler)
    for size in (8, 5, 3):
        x = torch.randn(size, 16)
        assert equal(gradients(module, compiled, x), gradients(module, module, x))
    assert len(compiler.plans) == 3


def test_optimizers_of_files(tmp_path):
    path, captured = tmp_path / "optimizer.json", remat.torch.capture(Net(), torch.randn(4, 8))
    elements = sum(tensor.numel() for tensor in captured.module.parameters())
    said = {"schema": "remat.optimizer/1", "states": 1, "bytes_per_element": 2.5, "fixed": 10}
    path.write_text(json.dumps(said))
    assert read_optimizer(str(path)) == Optimizer(1, 2.5, 10)
    assert captured.static_bytes(str(path))["optimizer"] == -(-elements * 13 // 2) + 10
    assert captured.static_bytes("adam")["optimizer"] == 8 * elements
    assert captured.static_bytes()["optimizer"] == 0
    for wrong in ({"states": "two"}, {"states": -1}, {"moments": 2}, {"schema": "remat.plan/1"}):
        path.write_text(json.dumps(said | wrong))
        with pytest.raises(remat.InstanceError, match=next(iter(wrong))):
            read_optimizer(str(path))
    with pytest.raises(remat.OptionError, match=r"there is no 'lion'; known are sgd, .*, and files"):
        read_optimizer("lion")
