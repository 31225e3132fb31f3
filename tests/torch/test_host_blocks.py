"""Blocks whose parameters are at a host between their uses: PyTorch's values to the bit, at the verified peak."""

import copy
import io
import pickle
import threading

import pytest
import torch
from torch import nn

import remat
import remat.torch
from remat.bridges.torch.blocks import find_blocks
from remat.bridges.torch.host_updates import slots
from remat.bridges.torch.host_updates.weights import Weights
from remat.bridges.torch.measure import LiveStorages
from remat.bridges.torch.transfers import Plain
from remat.errors import OptionError
from tests.torch import models
from tests.torch.test_blocks import convolutions, resnet, transformer
from tests.torch.test_host_updates import Delayed

CLOSE = 64
AWAY = {"host": "1GB", "link": "20MB/s", "optimizer": "adamw", "host_bandwidth": "1GB/s"}


@pytest.fixture(autouse=True)
def equal_times(monkeypatch):
    """Let all blocks take a millisecond, so that schedules do not depend on the load."""
    monkeypatch.setattr("remat.bridges.torch.chain_capture.microseconds", lambda _: 1000)


class Live(LiveStorages):
    """Counts storages that operators made, and those of the blocks' parameters, which come and go."""

    def __init__(self, moving, others):
        super().__init__((*moving, *others))
        self.moving, self.top = list(moving), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = super().__torch_dispatch__(function, types, args, kwargs)
        self.top = max(self.top, self.now + sum(one.untyped_storage().nbytes() for one in self.moving))
        return returned


def measured(factory, blocks):
    module, args, kwargs = models.make(factory)
    return module, args, kwargs, remat.torch.chain(module, args, kwargs, blocks=blocks, repeats=1, away=AWAY)


def moving_in(module, blocks):
    return [parameter for block in find_blocks(module, blocks) for parameter in block.module.parameters()]


@pytest.mark.parametrize(
    ("factory", "blocks", "algorithm", "share"),
    [
        (transformer, "layers.*", "weight-offload", 0.5),
        (convolutions, "net.*", "weight-offload", 0.8),
        (resnet, "net.*", "weight-offload", 0.8),
        (resnet, "net.*", "zero-infinity", None),
        (resnet, "net.*", "l2l", None),
        (convolutions, "net.*", "weight-offload", 0.5),
        (convolutions, "net.*", "offmate", 0.4),
    ],
)
def test_blocks_train_as_in_pytorch_at_the_verified_peak(factory, blocks, algorithm, share):
    module, args, kwargs, chain = measured(factory, blocks)
    other = copy.deepcopy(module)
    plan = remat.solve(chain, algorithm=algorithm)
    if share is not None:
        plan = remat.solve(chain, algorithm=algorithm, budget={"device": int(share * plan.peak_memory["device"])})
    moving = moving_in(module, blocks)
    mine = remat.torch.host_optimizer(module, torch.optim.AdamW, lr=0.01, host="1GB")
    planned = remat.torch.apply(module, plan, blocks=blocks, optimizer=mine)
    plain = torch.optim.AdamW(other.parameters(), lr=0.01)
    others = [one for one in module.parameters() if all(one is not part for part in moving)]
    state = torch.get_rng_state()
    for _ in range(5):
        live = Live(moving, (*others, *module.buffers(), *args, *kwargs.values()))
        with live:
            loss = models.loss_of(planned(*args, **kwargs))
            loss.backward()
            del loss
            mine.step()
        assert sum(one.untyped_storage().nbytes() for one in moving) == 0
        assert mine.memory.used == sum(mine.host_bytes.values())
    random = torch.get_rng_state()
    torch.set_rng_state(state)
    for _ in range(5):
        plain.zero_grad()
        models.loss_of(other(*args, **kwargs)).backward()
        plain.step()
    assert torch.equal(random, torch.get_rng_state())
    mine_now, theirs = planned.state_dict(), other.state_dict()
    assert mine_now.keys() == theirs.keys()
    assert all(torch.equal(mine_now[name], theirs[name]) for name in theirs)
    peak = planned.program.peak_memory()["device"]
    assert abs(live.top - peak) <= CLOSE
    assert peak <= plan.peak_memory["device"]
    if share is not None:
        assert planned.program.copies > 2 * len(chain.stages) - 4
    assert sum(stage.parameter_size for stage in chain.stages) == sum(one.nbytes for one in moving)
    copied = {step["offload"][0] for step in planned.program.to_document() if "offload" in step}
    assert copied == {"l2l": {"g", "x"}, "offmate": {"g", "x", "s"}}.get(algorithm, copied)
    assert "x" in copied or share != 0.5 or factory is not convolutions


@pytest.mark.parametrize(
    ("factory", "blocks", "algorithm", "late"),
    [(transformer, "layers.*", "weight-offload", 0), (resnet, "net.*", "l2l", 0), (transformer, "layers.*", "l2l", 1)],
)
def test_blocks_train_with_the_updates_of_the_step_before(factory, blocks, algorithm, late):
    module, args, kwargs = models.make(factory)
    away = {**AWAY, "staleness": late}
    chain = remat.torch.chain(module, args, kwargs, blocks=blocks, repeats=1, away=away)
    plan, other = remat.solve(chain, algorithm=algorithm), copy.deepcopy(module)
    moving = moving_in(module, blocks)
    mine = remat.torch.host_optimizer(module, torch.optim.AdamW, lr=0.01, host="1GB", staleness=1)
    planned = remat.torch.apply(module, plan, blocks=blocks, optimizer=mine)
    others = [one for one in module.parameters() if all(one is not part for part in moving)]
    state = torch.get_rng_state()
    for _ in range(5):
        live = Live(moving, (*others, *module.buffers(), *args, *kwargs.values()))
        with live:
            models.loss_of(planned(*args, **kwargs)).backward()
            mine.step()
        assert abs(live.top - planned.program.peak_memory()["device"]) <= CLOSE
        assert mine.memory.used >= 2 * sum(one.nbytes for one in moving)
    before = copy.deepcopy(planned.state_dict())
    mine.finish()
    torch.set_rng_state(state)
    plain = Delayed(other, torch.optim.AdamW(other.parameters(), lr=0.01))
    for _ in range(5):
        plain.zero_grad()
        models.loss_of(other(*args, **kwargs)).backward()
        plain.step()
    assert all(torch.equal(before[name], held) for name, held in other.state_dict().items())
    plain.finish()
    assert all(torch.equal(planned.state_dict()[name], held) for name, held in other.state_dict().items())
    assert (plan.report.steady is not None) == bool(late)
    assert planned.program.peak_memory()["device"] <= plan.peak_memory["device"]


def test_files_during_delayed_updates():
    planned, other, mine, args, kwargs = applied(staleness=1)
    planned(*args, **kwargs).backward()
    mine.step()
    found = planned.state_dict()
    assert all(torch.equal(found[name], held) for name, held in other.layers.state_dict(prefix="layers.").items())
    with pytest.raises(remat.torch.TorchError, match=r"is being updated at the host: call the optimizer's finish\(\)"):
        planned.load_state_dict(other.state_dict())
    mine.finish()
    assert not torch.equal(planned.state_dict()["layers.0.linear1.weight"], other.layers[0].linear1.weight)
    planned.load_state_dict(other.state_dict())
    state = torch.get_rng_state()
    loss = planned(*args, **kwargs)
    torch.set_rng_state(state)
    assert torch.equal(loss, other(*args, **kwargs))


class LateEvent:
    """A copy that happens when the compute stream waits for it."""

    def __init__(self, source, target):
        self.source, self.target, self.done = source, target, threading.Event()

    def copy(self):
        if not self.done.is_set():
            self.target.copy_(self.source)
            self.done.set()

    def synchronize(self):
        assert self.done.wait(30)


def whole(tensors):
    return torch.empty(0, dtype=torch.uint8).set_(next(iter(tensors.values())).untyped_storage())


class LateTransfers(Plain):
    """Copies of storages that happen when the compute stream waits for them."""

    def offload(self, tensors):
        away = super().offload(tensors)
        away.event = LateEvent(whole(tensors), away.buffer.fill_(255))
        return away

    def reload(self, away):
        assert away.event.done.is_set()
        tensors = super().reload(away)
        away.event = LateEvent(away.buffer.clone(), whole(tensors).fill_(255))
        return tensors

    def wait(self, away):
        away.event.copy()


class LateLink(slots.Link):
    def send(self, tensor, target):
        return LateEvent(tensor, target.fill_(float("nan")))

    def fetch(self, new, target):
        return LateEvent(new, target.fill_(float("nan")))

    def wait(self, event):
        if event is not None:
            with torch.no_grad():
                event.copy()


@pytest.mark.parametrize("algorithm", ["weight-offload", "l2l"])
def test_waits_suffice_however_late_copies_happen(monkeypatch, algorithm):
    monkeypatch.setattr("remat.bridges.torch.host_updates.optimizer.link_for", lambda _: LateLink())
    monkeypatch.setattr("remat.bridges.torch.host_updates.activations.transfers_for", lambda _: LateTransfers())
    module, args, kwargs, chain = measured(transformer, "layers.*")
    other = copy.deepcopy(module)
    plan = remat.solve(chain, algorithm=algorithm)
    if algorithm == "weight-offload":
        plan = remat.solve(chain, algorithm=algorithm, budget={"device": plan.peak_memory["device"] // 2})
    blocks = [block.module for block in find_blocks(module, "layers.*")]
    mine = remat.torch.host_optimizer(
        module,
        torch.optim.SGD,
        host="1GB",
        lr=0.1,
        parameters=[{"params": [one for block in blocks for one in block.parameters()]}],
    )
    planned = remat.torch.apply(module, plan, blocks="layers.*", optimizer=mine)
    state = torch.get_rng_state()
    planned(*args, **kwargs).backward()
    mine.step()
    torch.set_rng_state(state)
    other(*args, **kwargs).backward()
    torch.optim.SGD(other.layers.parameters(), lr=0.1).step()
    found = module.state_dict()
    assert all(torch.equal(found[name], held) for name, held in other.state_dict().items())
    assert torch.equal(module.last.weight.grad, other.last.weight.grad)


def test_evaluation_and_files():
    module, args, kwargs, chain = measured(transformer, "layers.*")
    other = copy.deepcopy(module)
    mine = remat.torch.host_optimizer(module, torch.optim.SGD, host="1GB", lr=0.1)
    planned = remat.torch.apply(
        module, remat.solve(chain, algorithm="weight-offload"), blocks="layers.*", optimizer=mine
    )
    moving = moving_in(module, "layers.*")
    with pytest.raises(remat.torch.TorchError, match=r"block layers\.0 has its parameters at the host"):
        module(*args, **kwargs)
    with pytest.raises(remat.torch.TorchError, match="is at the host of another optimizer"):
        remat.torch.host_optimizer(module, torch.optim.SGD, host="1GB", lr=0.1)
    with torch.no_grad():
        other.eval(), planned.eval()
        assert torch.equal(planned(*args, **kwargs), other(*args, **kwargs))
    assert all(one.untyped_storage().nbytes() == 0 for one in moving)
    with torch.no_grad():
        for one in other.parameters():
            one.mul_(0.9)
    file = io.BytesIO()
    torch.save(other.state_dict(), file)
    file.seek(0)
    planned.load_state_dict(torch.load(file))
    assert all(one.untyped_storage().nbytes() == 0 for one in moving)
    assert all(torch.equal(held, module.state_dict()[name]) for name, held in other.state_dict().items())
    other.train(), planned.train()
    plain, state = torch.optim.SGD(other.parameters(), lr=0.1), torch.get_rng_state()
    for net, optimizer in ((planned, mine), (other, plain)):
        torch.set_rng_state(state)
        net(*args, **kwargs).backward()
        optimizer.step()
    assert all(torch.equal(held, module.state_dict()[name]) for name, held in other.state_dict().items())


def applied(prepare=lambda module: None, **more):
    """A transformer whose layers have their parameters at a host, a copy on the device, and the optimizer."""
    module, args, kwargs, chain = measured(transformer, "layers.*")
    optimizer = remat.torch.host_optimizer(module, torch.optim.SGD, host="1GB", lr=0.1, **more)
    prepare(module)
    other = copy.deepcopy(module)
    plan = remat.solve(chain, algorithm="weight-offload")
    planned = remat.torch.apply(module, plan, blocks="layers.*", optimizer=optimizer)
    return planned, other, optimizer, args, kwargs


def test_values_that_change_before_the_parameters_leave_count():
    def halve(module):
        module.load_state_dict({name: held / 2 for name, held in module.state_dict().items()})

    planned, other, *_ = applied(halve)
    found = planned.state_dict()
    assert all(torch.equal(found[name], held) for name, held in other.state_dict().items())


def test_parameters_are_not_read_during_their_update():
    planned, other, mine, args, kwargs = applied()
    saved = other.state_dict()
    planned(*args, **kwargs).backward()
    calls = [planned.state_dict, lambda: planned.load_state_dict(saved), lambda: planned(*args, **kwargs)]
    with torch.no_grad():
        for call in calls:
            with pytest.raises(remat.torch.TorchError, match=r"layers\..* is being updated at the host: call step\(\)"):
                call()
    with pytest.raises(remat.torch.TorchError, match="is being updated at the host"):
        planned(*args, **kwargs)
    mine.step()
    planned.load_state_dict(saved)
    found = planned.state_dict()
    assert all(torch.equal(found[name], held) for name, held in saved.items())
    planned(*args, **kwargs).backward()
    mine.step()


def test_gradients_before_the_parameters_leave_need_their_step():
    def train(module):
        module.layers[0].linear1.weight.sum().backward()

    with pytest.raises(remat.torch.TorchError, match=r"parameters are being updated: call step\(\) first"):
        applied(train)


def test_parameters_that_are_on_the_device_at_a_step_are_read_anew():
    """A step may find parameters on the device, after an error or where a schedule does not free them."""
    layer = nn.Linear(3, 2)
    module = nn.Sequential(layer)
    mine = remat.torch.host_optimizer(module, torch.optim.SGD, host="1GB", lr=0.1)
    weights = Weights(find_blocks(module, "*"), mine)
    first = module.state_dict()["0.weight"]
    weights.fetch(0)
    weights.wait("w", 0)
    assert torch.equal(layer.weight, first)
    layer.weight.grad = torch.ones(2, 3)
    weights.send(0)
    mine.step()
    assert torch.equal(module.state_dict()["0.weight"], first - 0.1)
    with weights.there(0):
        assert torch.equal(layer.weight, first - 0.1)


def test_copies_of_blocks_without_parameters_are_refused(tmp_path):
    planned, *_ = applied()
    for call in (copy.deepcopy, pickle.dumps, lambda module: torch.save(module, tmp_path / "module.pt")):
        with pytest.raises(remat.torch.TorchError, match=r"block layers\.0 has its parameters at the host, and cannot"):
            call(planned.layers)


class Twice(nn.Module):
    """A block that uses its parameter under two names."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(x))


def test_files_have_all_names_of_a_parameter():
    module = nn.Sequential(Twice(), Twice())
    saved = copy.deepcopy(module.state_dict())
    mine = remat.torch.host_optimizer(module, torch.optim.SGD, host="1GB", lr=0.1)
    Weights(find_blocks(module, "*"), mine)
    found = module.state_dict()
    assert found.keys() == saved.keys()
    assert all(held.untyped_storage().nbytes() for held in found.values())
    assert all(torch.equal(found[name], held) for name, held in saved.items())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.layers[2].weight = self.layers[0].weight

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


class Outside(Tied):
    def __init__(self):
        super().__init__()
        self.layers[2].weight = nn.Parameter(torch.randn(4, 4))
        self.last = nn.Linear(4, 4)
        self.last.weight = self.layers[0].weight


@pytest.mark.parametrize(
    ("factory", "message"),
    [(Tied, r"blocks layers\.0 and layers\.2 share a parameter"), (Outside, r"block layers\.0 shares weight with")],
)
def test_shared_parameters_are_refused(factory, message):
    with pytest.raises(remat.torch.TorchError, match=message):
        remat.torch.chain(factory(), (torch.randn(2, 4),), blocks="layers.*", away=AWAY)


@pytest.mark.parametrize(
    ("away", "message"),
    [
        ({"host": "1GB"}, "away: no optimizer: give away="),
        ({"optimizer": "adamw"}, "away: no host: give away="),
        ({"host": 0, "optimizer": "adamw"}, "host: the host has no memory"),
        ({**AWAY, "staleness": 2}, "staleness: expected 0 or 1, not 2"),
        ({**AWAY, "link": 0}, "link: a bandwidth of 0"),
        ({**AWAY, "speed": 1}, "away: there is no 'speed'; known are"),
        ({**AWAY, "optimizer": "lion"}, "optimizer: there is no 'lion'"),
    ],
)
def test_hosts_that_are_refused(away, message):
    with pytest.raises(OptionError, match=message) as caught:
        remat.torch.chain(Tied(), (torch.randn(2, 4),), blocks="layers.*", away=away)
    assert "\n" not in str(caught.value)


def test_schedules_and_optimizers_that_are_refused():
    module, _, _, chain = measured(transformer, "layers.*")
    plan = remat.solve(chain, algorithm="weight-offload")

    def optimizer(**more):
        return remat.torch.host_optimizer(module, torch.optim.SGD, host="1GB", lr=0.1, **more)

    with pytest.raises(OptionError, match="optimizer: the schedule has parameters at a host"):
        remat.torch.apply(module, plan, blocks="layers.*")
    with pytest.raises(OptionError, match=r"optimizer: it needs a remat\.Result whose"):
        remat.torch.apply(module, plan.to_dict(), blocks="layers.*", optimizer=optimizer())
    with pytest.raises(remat.torch.TorchError, match="overlap=True"):
        remat.torch.apply(module, plan, blocks="layers.*", optimizer=optimizer(overlap=False))
    few = optimizer(parameters=[{"params": list(module.last.parameters())}])
    with pytest.raises(remat.torch.TorchError, match="has a parameter that the optimizer does not have"):
        remat.torch.apply(module, plan, blocks="layers.*", optimizer=few)
    late = remat.torch.chain(*models.make(transformer), blocks="layers.*", repeats=1, away={**AWAY, "staleness": 1})
    with pytest.raises(OptionError, match="optimizer: the schedule has a staleness of 1, and the optimizer one of 0"):
        remat.torch.apply(module, remat.solve(late, algorithm="l2l"), blocks="layers.*", optimizer=optimizer())
    two = ["layers.0", "layers.1"]
    with pytest.raises(remat.torch.TorchError, match="the schedule does not go with 2 blocks: it runs 'Fe"):
        remat.torch.apply(module, plan, blocks=two, optimizer=optimizer())
    none = remat.solve(chain, algorithm="weight-offload", budget={"device": 1})
    with pytest.raises(remat.torch.TorchError, match="there is no schedule: infeasible"):
        remat.torch.apply(module, none, blocks="layers.*", optimizer=optimizer())
    assert all(one.untyped_storage().nbytes() for one in module.parameters())


def test_updates_on_the_device_are_refused():
    module, _, _, chain = measured(convolutions, "net.*")
    plan = remat.solve(chain, algorithm="weight-offload")
    plan = remat.solve(chain, algorithm="offmate", budget={"device": int(0.6 * plan.peak_memory["device"])})
    mine = remat.torch.host_optimizer(module, torch.optim.SGD, host="1GB", lr=0.1)
    with pytest.raises(remat.torch.TorchError, match="the schedule updates on the device; apply does not, but runs"):
        remat.torch.apply(module, plan, blocks="net.*", optimizer=mine)
    assert all(one.untyped_storage().nbytes() for one in module.parameters())


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.hidden = x.exp()
        return ctx.hidden.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.hidden


class Hiding(nn.Linear):
    """Keeps a tensor that PyTorch does not know of."""

    def forward(self, x):
        return Kept.apply(super().forward(x))


def hiding():
    layers = (nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(5))
    return models.labelled(nn.Sequential(Hiding(16, 16), *layers, nn.Linear(16, 5)), 64, 16)


def test_saved_tensors_that_cannot_leave_are_refused():
    module, args, kwargs, chain = measured(hiding, "net.*")
    plan = remat.solve(chain, algorithm="weight-offload")
    plan = remat.solve(chain, algorithm="offmate", budget={"device": int(0.7 * plan.peak_memory["device"])})
    mine = remat.torch.host_optimizer(module, torch.optim.SGD, host="1GB", lr=0.1)
    planned = remat.torch.apply(module, plan, blocks="net.*", optimizer=mine)
    assert any("s1" in one.values() for one in planned.program.to_document() if "offload" in one)
    with pytest.raises(remat.torch.TorchError, match=r"block net\.0 keeps 4096 B for its backward that PyTorch's"):
        planned(*args, **kwargs).backward()


def test_activations_need_memory_at_the_host():
    module, args, kwargs, chain = measured(transformer, "layers.*")
    plan = remat.solve(chain, algorithm="l2l")
    size = sum(one.nbytes for one in module.parameters())
    mine = remat.torch.host_optimizer(module, torch.optim.SGD, host=size + 1000, lr=0.1)
    planned = remat.torch.apply(module, plan, blocks="layers.*", optimizer=mine)
    with pytest.raises(remat.torch.TorchError, match=r"the result of the input takes .* at the host, which has"):
        planned(*args, **kwargs)
    assert mine.memory.used == size


def test_modules_that_have_a_plan_are_not_planned_again():
    module, args, kwargs, chain = measured(transformer, "layers.*")
    plan = remat.solve(chain, algorithm="weight-offload")
    near = remat.torch.chain(module, args, kwargs, blocks="layers.*", repeats=1)
    mine = remat.torch.host_optimizer(module, torch.optim.SGD, host="1GB", lr=0.1)
    kept = remat.solve(near, algorithm="keep-all")
    once = remat.torch.apply(module, kept, blocks="layers.*")
    planned = remat.torch.apply(module, plan, blocks="layers.*", optimizer=mine)
    hosted = (
        r"layers\.0 has its parameters at a host already: an earlier apply .*; to plan again, build the module anew"
    )
    again = "the module was returned by apply and has a plan; to plan again, give the one before apply"
    for one in (module, planned, once):
        for call in (
            lambda one=one: remat.torch.apply(one, plan, blocks="layers.*", optimizer=mine),
            lambda one=one: remat.torch.apply(one, kept, blocks="layers.*"),
            lambda one=one: remat.torch.chain(one, args, kwargs, blocks="layers.*", repeats=1, away=AWAY),
            lambda one=one: remat.torch.compile(one),
        ):
            with pytest.raises(remat.torch.TorchError, match=hosted):
                call()
    plain, *_ = measured(transformer, "layers.*")
    plain = remat.torch.apply(plain, kept, blocks="layers.*")
    for call in (
        lambda: remat.torch.apply(plain, kept, blocks="layers.*"),
        lambda: remat.torch.chain(plain, args, kwargs, blocks="layers.*", repeats=1),
        lambda: remat.torch.compile(plain),
    ):
        with pytest.raises(remat.torch.TorchError, match=again):
            call()
    planned(*args, **kwargs).backward()
    mine.step()
