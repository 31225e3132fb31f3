"""Sizes that change from call to call: one symbolic graph, orders verified for each set of sizes."""

import copy
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import remat
import remat.torch
from remat.bridges.torch.capture import Captured
from remat.bridges.torch.measure import LiveStorages
from remat.bridges.torch.planning import TooSmallError
from tests.torch import models
from tests.torch.studies import WORK, equal, step_bytes
from tests.torch.test_drawn import CLOSE, COMMON, STEPS, WIDTH, Drawn


class Resized(Drawn):
    """Drawn programs for any number of rows."""

    def views(self, x, y, _):
        return x.t().reshape(WIDTH, -1).t().contiguous() + y.view(2, -1, WIDTH).flatten(0, 1)


def step(call, module, args, kwargs=None):
    """Loss, gradients, buffers and the next random number after a step."""
    module.zero_grad()
    torch.manual_seed(2)
    loss = models.loss_of(call(*args, **(kwargs or {})))
    loss.backward()
    gradients = {name: tensor.grad for name, tensor in module.named_parameters() if tensor.grad is not None}
    return {"loss": loss.detach(), "drawn": torch.rand(1), **gradients, **dict(module.named_buffers())}


def live_peak(call, module, args, kwargs=None):
    module.zero_grad()
    given = [*module.parameters(), *module.buffers(), *args, *(kwargs or {}).values()]
    live = LiveStorages(given)
    with live:
        models.loss_of(call(*args, **(kwargs or {}))).backward()
    return live.peak


def planner(budget):
    return remat.torch.backend(budget, algorithm="dag-auto", options=WORK)


def examine_sizes(program, sizes):
    torch._dynamo.reset()
    torch.manual_seed(1)
    module = Resized(program)
    plain, start = copy.deepcopy(module), copy.deepcopy(module.state_dict())
    compiled = remat.torch.compile(module, "85%", algorithm="dag-auto", options=WORK)
    for rows in dict.fromkeys(sizes):
        torch._dynamo.mark_dynamic(x := torch.randn(rows, WIDTH), 0)
        for net in (module, plain):
            net.load_state_dict(start)
        right = step(plain, plain, (x,))
        try:
            found = step(compiled, module, (x,))
        except TooSmallError:
            return
        assert equal(found, right)
        assert live_peak(compiled, module, (x,)) <= step_bytes(compiled.plan) + CLOSE


@settings(max_examples=3, **COMMON)
@given(STEPS, st.lists(st.integers(2, 60).map(lambda half: 2 * half), min_size=3, max_size=3))
def test_drawn_modules_with_drawn_sizes(program, sizes):
    examine_sizes(program, sizes)


@pytest.mark.slow
@settings(max_examples=60, **COMMON)
@given(STEPS, st.lists(st.integers(2, 60).map(lambda half: 2 * half), min_size=3, max_size=6))
def test_many_drawn_modules_with_drawn_sizes(program, sizes):
    examine_sizes(program, sizes)


def of_size(factory, batch):
    """A network's arguments, cut or repeated along the batch."""
    _, args, kwargs = models.make(factory)

    def resized(tensor):
        return tensor.repeat(2, *[1] * (tensor.dim() - 1))[:batch] if isinstance(tensor, torch.Tensor) else tensor

    return tuple(map(resized, args)), {name: resized(tensor) for name, tensor in kwargs.items()}


@pytest.mark.parametrize("factory", [models.conv, pytest.param(models.gpt2, marks=pytest.mark.slow)])
def test_networks_follow_one_capture(factory, monkeypatch):
    module = models.make(factory)[0]
    plain, start = copy.deepcopy(module), copy.deepcopy(module.state_dict())
    captures = []
    monkeypatch.setattr(Captured, "__init__", counted(Captured.__init__, captures))
    planned = remat.torch.compile(module, "70%", algorithm="dag-auto", options=WORK)
    for batch in (4, 6, 3, 5, 2):
        args, kwargs = of_size(factory, batch)
        for net in (module, plain):
            net.load_state_dict(start)
        assert equal(step(planned, module, args, kwargs), step(plain, plain, args, kwargs))
        assert live_peak(planned, module, args, kwargs) <= step_bytes(planned.plan) + CLOSE
    assert len(captures) == 2, "the first sizes, and all others"


def counted(function, calls):
    def call(*args, **kwargs):
        calls.append(1)
        return function(*args, **kwargs)

    return call


def test_known_sizes_cost_no_plan(monkeypatch):
    from remat.bridges.torch import backend

    module = Resized([("layer", 0, 1), ("smooth", 0, 0), ("layer", 0, 2), ("smooth", 0, 0)])
    planned = remat.torch.compile(module, "80%", algorithm="dag-auto", options=WORK)
    for rows in (200, 160, 200):
        torch._dynamo.mark_dynamic(x := torch.randn(rows, WIDTH), 0)
        planned(x).backward()
    monkeypatch.setattr(backend, "make_plan", None)
    for rows in (200, 160, 120, 90, 64, 200):
        planned(torch.randn(rows, WIDTH)).backward()


@pytest.mark.parametrize("dynamic", [False, None, True])
def test_a_share_is_that_of_the_largest_sizes_so_far(dynamic):
    """The last batch of an epoch is smaller; 80 % of its peak would be below the minimum budget."""
    module, compiler = Resized([("layer", 0, 1), ("smooth", 0, 0), ("smooth", 0, 0), ("layer", 0, 2)]), planner("80%")
    compiled = torch.compile(module, backend=compiler, dynamic=dynamic)
    for rows in (200, 6):
        compiled(torch.randn(rows, WIDTH)).backward()
    first, last = compiler.plans
    assert first.overhead > 0
    assert last.overhead == 0
    assert last.peak < first.peak
    compiled(torch.randn(400, WIDTH)).backward()
    assert first.peak < compiler.plans[-1].peak
    assert compiler.plans[-1].overhead > 0


class Unrolled(nn.Module):
    """A module with a separate graph for each size."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for _ in range(x.shape[0]):
            x = torch.tanh(self.linear(x))
        return x.square().mean()


def test_no_number_of_shapes_ends_the_training():
    module = Unrolled()
    with torch._dynamo.config.patch(recompile_limit=2, accumulated_recompile_limit=3):
        planned = remat.torch.compile(module, "1MB")
        for rows in range(1, 7):
            x = torch.randn(rows, WIDTH)
            assert equal(step(planned, module, (x,)), step(module.forward, module, (x,)))
    assert len(planned.plan.runs) > 12


def test_a_plan_file_is_for_smaller_sizes_too(tmp_path):
    module = Resized([("layer", 0, 1), ("smooth", 0, 0), ("layer", 0, 2), ("smooth", 0, 0)])
    first = planner("80%")
    torch.compile(module, backend=first, dynamic=True)(torch.randn(200, WIDTH)).backward()
    first.plan.save(tmp_path / "plan.json")
    second = remat.torch.backend(plan=tmp_path / "plan.json")
    torch._dynamo.reset()
    compiled = torch.compile(module, backend=second, dynamic=True)
    for rows in (200, 180):
        x = torch.randn(rows, WIDTH)
        assert equal(step(compiled, module, (x,)), step(module, module, (x,)))
    assert second.plans[0].runs == first.plan.runs
    assert second.plans[1].peak <= first.plan.peak
    with pytest.raises(Exception, match="the plan is for another program"):
        compiled(torch.randn(400, WIDTH))


def test_new_sizes_beyond_the_budget_are_planned_with_a_warning():
    module = Resized([("layer", 0, 1), ("smooth", 0, 0), ("layer", 0, 2), ("smooth", 0, 0)])
    whole = remat.torch.capture(module, torch.randn(300, WIDTH))
    instance = whole.instance(static=sum(whole.static_bytes().values()))
    budget = remat.solve(instance, algorithm="keep-all").peak_memory["memory"] - 1
    compiled = torch.compile(module, backend=planner(budget), dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.randn(100, WIDTH)).backward()
    with pytest.warns(UserWarning, match=r"with inputs of \[300, 8\] no known order .* largest sizes first"):
        compiled(torch.randn(300, WIDTH)).backward()


class Chosen(nn.Module):
    """Selects rows by their values, and masks the loss."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x):
        rows = torch.tanh(self.one(x))
        chosen = torch.tanh(self.two(rows[rows.detach()[:, 0] > 0]))
        large = chosen[chosen.abs() > 0.1]
        return large.square().sum() + chosen.square().mean()


def test_sizes_that_depend_on_data_count_as_their_largest():
    torch.manual_seed(4)
    module = Chosen()
    x = torch.randn(300, WIDTH)
    captured = remat.torch.capture(module, x)
    right = step(module, copy.deepcopy(module), (x,))
    instance = captured.instance()
    kept = remat.solve(instance, algorithm="keep-all")
    budget = (kept.peak_memory["memory"] * 4) // 5
    for plan in (kept, remat.solve(instance, algorithm="dag-auto", budget=budget, options=WORK)):
        done = remat.torch.execute(captured, plan)
        assert torch.equal(done.loss, right["loss"])
        assert done.live_peak <= plan.peak_memory["memory"] + CLOSE
    planned = remat.torch.compile(module, "80%", algorithm="dag-auto", options=WORK)
    plain = copy.deepcopy(module)
    for rows in (300, 300, 200, 120):
        x = torch.randn(rows, WIDTH)
        assert equal(step(planned, module, (x,)), step(plain, plain, (x,)))
        assert live_peak(planned, module, (x,)) <= step_bytes(planned.plan) + CLOSE


class Counted(nn.Module):
    """Repeats its result as often as the data says."""

    def __init__(self, *, bounded):
        super().__init__()
        self.linear, self.bounded = nn.Linear(WIDTH, WIDTH), bounded

    def forward(self, x, count):
        number = count.item()
        if self.bounded:
            torch._check(number <= 40)
        torch._check(number >= 2)
        return torch.tanh(self.linear(x)).expand(number, -1, -1).exp().square().mean()


def test_a_size_from_the_data_needs_a_bound():
    x, count = torch.randn(16, WIDTH), torch.tensor(20)
    captured = remat.torch.capture(Counted(bounded=True), x, count)
    largest = max(captured.joint.values.values())
    assert largest == 40 * 16 * WIDTH * 4
    with pytest.raises(remat.torch.TorchError, match=r"has no upper bound; torch._check\(n <= MOST"):
        remat.torch.capture(Counted(bounded=False), x, count)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.table = kind(WIDTH, 16, batch_first=True), nn.Embedding(50, WIDTH, sparse=True)

    def forward(self, ids):
        return self.layer(self.table(ids) + self.table(ids + 1))[0].square().mean()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_and_sparse_gradients(kind):
    """Both differ from eager PyTorch only as `aot_eager` does."""
    torch.manual_seed(1)
    module, ids = Recurrent(kind), torch.randint(49, (32, 6))
    plain = copy.deepcopy(module)
    planned = remat.torch.compile(module, "85%", algorithm="dag-auto", options=WORK)
    found = step(planned, module, (ids,))
    with torch._dynamo.config.patch(allow_rnn=True):
        right = step(torch.compile(plain, backend="aot_eager"), plain, (ids,))
    for one in (found, right):
        assert one["table.weight"].is_sparse
        one["table.weight"] = one["table.weight"].coalesce().to_dense()
    assert equal(found, right)
    assert planned.plan.overhead > 0
    assert live_peak(planned, module, (ids,)) <= step_bytes(planned.plan) + CLOSE
