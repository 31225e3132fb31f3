"""Optimizers at a host: parameters of PyTorch's own optimizers to the bit, and the device's bytes as planned."""

import copy
import io
import re
import threading
from fractions import Fraction

import pytest
import torch
from torch import nn

import remat.torch
from remat.bridges.torch.host_updates import slots
from remat.bridges.torch.measure import LiveStorages
from remat.bridges.torch.planning import make_plan
from remat.bridges.torch.shim import StorageWeakRef
from remat.errors import OptionError
from remat.units import format_size, format_time
from tests.torch import models
from tests.torch.streams import on_the_cpu

CLOSE = 64
STEPS = 5
WORK = {"iterations": 1}
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
}
AT_HOST = {"host": "1GB", "link": "20GB/s", "optimizer_memory": "host", "host_bandwidth": "50GB/s", "options": WORK}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 24, bias=False), nn.GELU(), nn.Linear(24, 5))


def batches(count=STEPS):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 16, generator=generator) for _ in range(count)]


def same(one, two):
    return all(torch.equal(*pair) for pair in zip(one.parameters(), two.parameters(), strict=True))


class Delayed:
    """The reference for a staleness of 1: a step applies the gradients of the one before."""

    def __init__(self, module, optimizer):
        self.held, self.optimizer, self.gradients = list(module.parameters()), optimizer, None

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        new = [parameter.grad for parameter in self.held]
        self.finish()
        self.gradients = new

    def finish(self):
        for parameter, gradient in zip(self.held, self.gradients or (), strict=self.gradients is not None):
            parameter.grad = gradient
        if self.gradients is not None:
            self.optimizer.step()


def trained(module, optimizer, given, loss=lambda out: out.square().mean()):
    """Train, and return the parameters after each step."""
    seen = []
    for x in given:
        optimizer.zero_grad()
        loss(module(x)).backward()
        optimizer.step()
        seen.append([parameter.detach().clone() for parameter in module.parameters()])
    return seen


def equal_steps(one, two):
    return all(
        torch.equal(a, b) for first, second in zip(one, two, strict=True) for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("how", [{}, {"overlap": False}, {"staleness": 1}], ids=["overlapped", "at step", "delayed"])
def test_parameters_are_those_of_pytorch(name, how):
    kind, options = OPTIMIZERS[name]
    one, two = network(), network()
    plain = kind(one.parameters(), **options)
    reference = Delayed(one, plain) if how.get("staleness") else plain
    mine = remat.torch.host_optimizer(two, kind, host="1MB", **how, **options)
    assert equal_steps(trained(one, reference, batches()), trained(two, mine, batches()))
    mine.finish()
    if reference is not plain:
        reference.finish()
    assert same(one, two)
    theirs, saved = plain.state_dict(), mine.state_dict()
    assert saved["param_groups"] == theirs["param_groups"]
    assert saved["state"].keys() == theirs["state"].keys()
    for key, state in theirs["state"].items():
        assert all(
            torch.equal(torch.as_tensor(state[part]), saved["state"][key][part])
            for part in state
            if state[part] is not None
        )
    assert mine.host_bytes["parameters"] == sum(parameter.nbytes for parameter in one.parameters())
    assert mine.host_bytes["gradients"] == 0
    assert mine.memory.used == sum(mine.host_bytes.values())


def test_states_go_from_one_kind_to_the_other():
    given = batches(6)
    one, two = network(), network()
    plain = torch.optim.AdamW(one.parameters(), lr=0.01)
    trained(one, plain, given[:3])
    mine = remat.torch.host_optimizer(two, torch.optim.AdamW, host="1MB", lr=1.0)
    two.load_state_dict(one.state_dict())
    mine.load_state_dict(copy.deepcopy(plain.state_dict()))  # as PyTorch does, it keeps the tensors that it gets
    assert mine.param_groups[0]["lr"] == 0.01
    file = io.BytesIO()
    trained(one, plain, given[3:5])
    trained(two, mine, given[3:5])
    torch.save(mine.state_dict(), file)
    file.seek(0)
    plain.load_state_dict(torch.load(file))
    assert equal_steps(trained(one, plain, given[5:]), trained(two, mine, given[5:]))


def test_groups_schedulers_clipping_and_accumulation():
    one, two = network(), network()

    def groups(net):
        return [{"params": list(net[0].parameters()), "lr": 0.5}, {"params": [net[2].weight], "weight_decay": 0.1}]

    plain = torch.optim.SGD(groups(one), lr=0.1, momentum=0.9)
    mine = remat.torch.host_optimizer(
        two, torch.optim.SGD, host="1MB", overlap=False, parameters=groups(two), lr=0.1, momentum=0.9
    )
    plain.add_param_group({"params": one[4].parameters()})
    mine.add_param_group({"params": two[4].parameters()})
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) for optimizer in (plain, mine)]
    for first, second in zip(batches(6)[::2], batches(6)[1::2], strict=True):
        norms = []
        for net, optimizer in ((one, plain), (two, mine)):
            optimizer.zero_grad()
            net(first).square().mean().backward()
            net(second).square().mean().backward()
            assert optimizer is plain or mine.memory.used == sum(mine.host_bytes.values())
            clip = mine.clip_grad_norm_ if optimizer is mine else None
            norms.append(clip(0.01) if clip else nn.utils.clip_grad_norm_(one.parameters(), 0.01))
            optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
        assert torch.equal(*norms)
        assert same(one, two)
    two(batches()[0]).mean().backward()
    mine.zero_grad()  # forgets what waits at the host
    assert mine.host_bytes["gradients"] == 0
    assert mine.memory.used == sum(mine.host_bytes.values())
    mine.step()
    assert same(one, two)


def test_a_copy_in_full_precision():
    """Parameters in bfloat16 whose copies and states at the host are in fp32."""
    one, two = network().bfloat16(), network().bfloat16()
    mine = remat.torch.host_optimizer(two, torch.optim.AdamW, host="1MB", master=torch.float32, lr=0.01)
    masters = [parameter.detach().float() for parameter in one.parameters()]
    plain = torch.optim.AdamW(masters, lr=0.01)
    for x in batches():
        x = x.bfloat16()
        for net in (one, two):
            net(x).square().mean().backward()
        mine.step()
        for parameter, held in zip(one.parameters(), masters, strict=True):
            held.grad, parameter.grad = parameter.grad.float(), None
        plain.step()
        with torch.no_grad():
            for parameter, held in zip(one.parameters(), masters, strict=True):
                parameter.copy_(held)
        assert same(one, two)
    assert mine.host_bytes["parameters"] == 2 * sum(parameter.nbytes for parameter in one.parameters())


def test_weights_that_others_write_count():
    one, two = network(), network()
    plain, mine = torch.optim.SGD(one.parameters(), lr=0.1), None
    mine = remat.torch.host_optimizer(two, torch.optim.SGD, host="1MB", lr=0.1)
    for x in batches(3):
        for net, optimizer in ((one, plain), (two, mine)):
            with torch.no_grad():
                net[0].weight.mul_(0.5)
            trained(net, optimizer, [x])
        assert same(one, two)


def test_weights_that_are_written_after_finish_count_with_a_staleness():
    one, two = network(), network()
    plain = Delayed(one, torch.optim.SGD(one.parameters(), lr=0.1))
    mine = remat.torch.host_optimizer(two, torch.optim.SGD, host="1MB", lr=0.1, staleness=1)
    for x in batches(3):
        for net, optimizer in ((one, plain), (two, mine)):
            trained(net, optimizer, [x])
            optimizer.finish()
            optimizer.gradients = None
            with torch.no_grad():
                net[0].weight.clamp_(-0.1, 0.1)
        assert same(one, two)


class Watched(torch.optim.SGD):
    """Lets the test see when updates run, and in which thread."""

    free = threading.Event()
    updated = threading.Event()
    threads: set[int]

    def step(self, closure=None):
        Watched.threads.add(threading.get_ident())
        assert Watched.free.wait(30)
        super().step(closure)
        Watched.updated.set()


class Pause(torch.autograd.Function):
    """Calls a function in the middle of the backward."""

    @staticmethod
    def forward(ctx, x, act):
        ctx.act = act
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.act()
        return gradient, None


def test_updates_overlap_with_the_backward():
    """The first update ends while the backward has not, and the backward does not wait for updates."""
    Watched.threads = set()
    Watched.free.set()
    net, x = network(), batches()[0]
    mine = remat.torch.host_optimizer(net, Watched, host="1MB", lr=0.1)
    Watched.threads.clear()  # it was tried once
    seen = []

    def inside():
        seen.append(Watched.updated.wait(30))
        Watched.free.clear()

    Watched.updated.clear()
    hidden = Pause.apply(net[:2](x), inside)
    net[2:](hidden).square().mean().backward()
    assert seen == [True]
    assert all(parameter.grad is None for parameter in net.parameters())
    Watched.free.set()
    mine.step()
    assert threading.get_ident() not in Watched.threads
    assert len(Watched.threads) == 1


@pytest.mark.parametrize(
    ("factory", "share", "staleness"),
    [
        (models.mlp, "70%", 0),
        (models.mlp, None, 1),
        (models.shared, "70%", 1),
        (models.conv, "70%", 0),
        *(
            pytest.param(factory, share, staleness, marks=pytest.mark.slow)
            for factory in (models.unet, models.gpt2, models.vit, models.half)
            for share in (None, "70%")
            for staleness in (0, 1)
        ),
    ],
)
def test_a_compiled_module_keeps_only_what_is_planned(factory, share, staleness):
    module, args, kwargs = models.make(factory)
    other, given = copy.deepcopy(module), [one for one in (*args, *kwargs.values()) if torch.is_tensor(one)]
    planned = remat.torch.compile(module, share, optimizer="adamw", staleness=staleness, **AT_HOST)
    mine = remat.torch.host_optimizer(planned, torch.optim.AdamW, lr=0.01)
    plain = torch.optim.AdamW(other.parameters(), lr=0.01)
    theirs = Delayed(other, plain) if staleness else plain
    reference = remat.torch.compile(other)
    state = torch.get_rng_state()
    for _ in range(STEPS):
        live = LiveStorages((*module.parameters(), *module.buffers(), *given))
        with live:
            loss = models.loss_of(planned(*args, **kwargs))
            loss.backward()
            mine.step()
            del loss
    mine.finish()
    torch.set_rng_state(state)
    for _ in range(STEPS):
        theirs.zero_grad()
        models.loss_of(reference(*args, **kwargs)).backward()
        theirs.step()
    if staleness:
        theirs.finish()
    assert same(module, other)
    plan = planned.plan
    fixed = sum(plan.split[kind] for kind in ("parameters", "buffers", "inputs", "constants"))
    returned = sum(plan.step[kind] for kind in ("outputs",))  # the test drops all of these but the loss
    assert plan.peak - fixed - returned - CLOSE <= live.peak <= plan.peak - fixed + CLOSE
    assert plan.split["optimizer"] == plan.step["optimizer"] == 0
    assert plan.whole_peak == max(plan.peak, plan.step_peak)
    counters = 4 * len(mine.slots)  # each state counts its steps
    assert mine.host_bytes["parameters"] == plan.host["parameters"]
    assert mine.host_bytes["optimizer"] == plan.host["optimizer"] + counters
    assert plan.whole_step.peak_memory["device"] == plan.peak
    assert plan.whole_step.peak_memory["host"] >= sum(plan.host.values())
    assert "at the host, the device holds" in plan.summary


class One(nn.Module):
    """One parameter, whose gradient is most of the memory."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 1000))

    def forward(self, x):
        return (x @ self.weight).square().mean()


@pytest.mark.parametrize("staleness", [0, 1])
def test_the_time_of_a_step_contains_copies_and_updates(staleness):
    """Of one parameter, whose gradient is the last thing to be made, by hand."""
    module, x = One(), torch.randn(2, 64)
    planned = remat.torch.compile(module, optimizer="adam", staleness=staleness, **AT_HOST)
    mine = remat.torch.host_optimizer(planned, torch.optim.Adam)
    planned(x).backward()
    mine.step()
    result, size = planned.plan.whole_step, module.weight.nbytes
    runs = sum(step["end"] - step["start"] for step in steps_of(result) if step["on"] == "processor")
    copy_time = Fraction(size, 20_000)  # microseconds at 20 GB/s
    update = round(Fraction(size * 7, 50_000))  # gradient, and parameter and states twice
    turn = runs + copy_time
    expected = turn + update + copy_time if not staleness else max(turn, update) + copy_time
    assert result.makespan == pytest.approx(float(expected), rel=1e-9)
    alone = format_time(runs, result.units)
    times = f"{format_time(result.makespan, result.units)}, {result.makespan / runs:.3g} times the {alone} of"
    longest = max({"computation on the device takes": runs, "updates at the host take": update}.items(), key=second)
    assert planned.plan.summary.startswith(f"a step takes {times} forward and backward without recomputation: ")
    said = planned.plan.summary.splitlines()[0]
    if longest[1] > copy_time:
        assert f": {longest[0]} {format_time(longest[1], result.units)} of it (" in said
    else:
        assert ": copies to the " in said


def second(entry):
    return entry[1]


def test_a_share_as_budget_counts_the_reserve_on_top():
    """With a host as without: the share is of the peak, and the answer names its bytes with the reserve."""
    module, args, _ = models.make(models.mlp)
    captured = remat.torch.capture(module, *args)
    given = {"reserve": "1kB", "host": "1GB", "link": "1GB/s", "time_limit": 9}
    kept = make_plan(captured, remat.torch.Choices(**given)).peak
    assert make_plan(captured, remat.torch.Choices(budget="95%", **given)).peak <= 0.95 * kept
    with pytest.raises(remat.torch.TooSmallError) as caught:
        make_plan(captured, remat.torch.Choices(budget="5%", **given))
    assert f"within 5% ({format_size(kept // 20 + 1000)}) on the device" in str(caught.value)
    found = re.search(r"a schedule is found with .*?\(([\d.]+) KiB\)", str(caught.value))
    enough = int(float(found[1]) * 1024) + 1024
    assert make_plan(captured, remat.torch.Choices(budget=enough, **given)).peak + 1000 <= enough


def steps_of(result):
    """The runs with their times, by processor."""
    report, graph = result.report, result.graph
    times = zip(result.to_dict()["steps"], report.start.tolist(), report.end.tolist(), strict=True)
    return [
        {"on": step.get("on", ["processor"])[0], "start": start, "end": end}
        for step, start, end in times
        if "run" in step and step["run"] in graph.tasks
    ]


def test_gradients_that_are_most_of_the_memory_leave():
    """States and gradients at the host: the device needs less than half."""
    peaks = {}
    for where in (None, "host"):
        torch._dynamo.reset()
        module = nn.Sequential(*(nn.Linear(120, 120, bias=False) for _ in range(12)))
        loss = models.Loss(nn.Sequential(module, nn.Linear(120, 5)))
        args = (torch.randn(4, 120), torch.randint(5, (4,)))
        options = AT_HOST if where else {}
        planned = remat.torch.compile(loss, optimizer="adam", **options)
        optimizer = remat.torch.host_optimizer(planned, torch.optim.Adam) if where else None
        planned(*args).backward()
        peaks[where] = planned.plan.whole_peak
        if optimizer is not None:
            optimizer.step()
    assert peaks["host"] < 0.5 * peaks[None]


def compiled(budget=None, **more):
    module, args, _ = models.make(models.mlp)
    return remat.torch.compile(module, budget, optimizer="adamw", **{**AT_HOST, **more}), args


def test_a_plan_needs_its_optimizer(tmp_path):
    planned, args = compiled()
    with pytest.raises(remat.torch.TorchError, match=r"call remat.torch.host_optimizer\(module, ...\) before"):
        planned(*args).backward()
    remat.torch.host_optimizer(planned, torch.optim.AdamW)  # nobody keeps it
    with pytest.raises(remat.torch.TorchError, match=r"call remat\.torch\.host_optimizer"):
        planned(*args).backward()
    torch.save(planned, tmp_path / "module.pt")
    other = torch.load(tmp_path / "module.pt", weights_only=False)
    first = other.net[0].weight.detach().clone()
    mine = remat.torch.host_optimizer(other, torch.optim.AdamW)
    other(*args).backward()
    mine.step()
    assert not torch.equal(other.net[0].weight, first)
    assert planned.net[0].weight.grad is None


def test_a_second_gradient_before_the_step():
    planned, args = compiled()
    mine = remat.torch.host_optimizer(planned, torch.optim.AdamW)
    planned(*args).backward()
    with pytest.raises(remat.torch.TorchError, match=r"a second gradient of .* overlap=False"):
        planned(*args).backward()
    with pytest.raises(remat.torch.TorchError, match="is being updated"):
        mine.zero_grad()
    mine.step()
    mine.zero_grad()


def scaled(net, mine):
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(net(batches()[0]).mean()).backward()
    scaler.step(mine)


CALLS = {
    "closure": (lambda net, mine: mine.step(lambda: None), "step\\(\\) takes no closure"),
    "scaler": (scaled, "a GradScaler finds no gradients on the device"),
    "zeros": (lambda net, mine: mine.zero_grad(set_to_none=False), "zero_grad\\(set_to_none=True\\)"),
    "clip": (lambda net, mine: mine.clip_grad_norm_(1.0), "overlap=False lets them be clipped"),
    "copy": (lambda net, mine: copy.deepcopy(mine), "cannot be copied; save its state_dict"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_refused(name):
    net = network()
    call, message = CALLS[name]
    with pytest.raises(remat.torch.TorchError, match=message) as caught:
        call(net, remat.torch.host_optimizer(net, torch.optim.SGD, host="1MB", lr=0.1))
    assert "\n" not in str(caught.value)


class Counting(torch.optim.SGD):
    """Keeps its progress in its groups."""

    def step(self, closure=None):
        self.param_groups[0]["count"] = self.param_groups[0].get("count", 0) + 1
        self.param_groups[0]["lr"] *= 0.5
        super().step(closure)


def test_an_optimizer_that_changes_its_groups_is_refused():
    net = network()
    mine = remat.torch.host_optimizer(net, Counting, host="1MB", lr=0.1)
    net(batches()[0]).mean().backward()
    with pytest.raises(remat.torch.TorchError, match="Counting changes lr of its groups"):
        mine.step()


class Failing(torch.optim.SGD):
    """Fails for a parameter of a certain shape."""

    shape = None

    def step(self, closure=None):
        if self.param_groups[0]["params"][0].shape == Failing.shape:
            raise ValueError("no update for this shape")
        super().step(closure)


@pytest.mark.parametrize("how", [{}, {"overlap": False}], ids=["overlapped", "at step"])
def test_an_update_that_fails_leaves_the_others_to_end(how):
    net, x = network(), batches()[0]
    mine = remat.torch.host_optimizer(net, Failing, host="1MB", lr=0.1, **how)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    Failing.shape = net[2].weight.shape
    net(x).square().mean().backward()
    with pytest.raises(ValueError, match="no update for this shape"):
        mine.step()
    Failing.shape = None
    changed = [not torch.equal(*pair) for pair in zip(before, net.parameters(), strict=True)]
    assert changed == [True, True, False, True, True]
    net(x).square().mean().backward()
    mine.step()
    assert not torch.equal(before[2], net[2].weight)
    assert mine.memory.used == sum(mine.host_bytes.values())


def test_an_update_without_room_for_its_state_does_not_count():
    net, x = nn.Linear(16, 8, bias=False), batches()[0]
    size = net.weight.nbytes
    mine = remat.torch.host_optimizer(net, torch.optim.SGD, host=2 * size, lr=0.1, momentum=0.9)
    first = net.weight.detach().clone()
    net(x).square().mean().backward()
    with pytest.raises(remat.torch.TorchError, match=r"the state of weight takes 512 B"):
        mine.step()
    assert torch.equal(net.weight, first)
    assert torch.equal(mine.slots[id(net.weight)].master, first)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (torch.optim.SGD, {}, "host: no memory of a host: give host='64GB'"),
        (torch.optim.SGD, {"host": "1kB"}, "a copy of 0.weight takes 1.5 KiB at the host, which has 1000 B left"),
        (torch.optim.SGD, {"host": "1MB", "staleness": 2}, "staleness: expected 0 or 1, not 2"),
        (torch.optim.LBFGS, {"host": "1MB"}, "LBFGS cannot update at the host: .*closure"),
        (torch.optim.SparseAdam, {"host": "1MB"}, "SparseAdam cannot update at the host: "),
        (torch.optim.Adam, {"host": "1MB", "capturable": True}, "Adam cannot update at the host: "),
    ],
)
def test_optimizers_that_are_refused(kind, options, message):
    with pytest.raises((OptionError, remat.torch.TorchError), match=message) as caught:
        remat.torch.host_optimizer(network(), kind, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": None}, "host: no memory of a host"),
        ({"optimizer": None}, "optimizer: the plan needs the states"),
        ({"optimizer_memory": "disk"}, "optimizer_memory: expected 'host'"),
        ({"optimizer_memory": None}, "host_bandwidth: it is for updates at a host"),
        ({"optimizer_memory": None, "host_bandwidth": None, "staleness": 1}, "staleness: it is for updates at a host"),
        ({"staleness": 2}, "staleness: expected 0 or 1"),
        ({"accumulate": True}, "accumulate: gradients of earlier steps are at the host"),
        ({"link": 0}, "link: a bandwidth of 0"),
        ({"host_bandwidth": 0}, "host_bandwidth: a bandwidth of 0"),
    ],
)
def test_plans_that_are_refused(options, message):
    given = {"link": None, **AT_HOST, "optimizer": "adamw", **options}
    if given["host"] is None:
        del given["link"]
    with pytest.raises(OptionError, match=message) as caught:
        remat.torch.compile(network(), "1MB", **given)
    assert "\n" not in str(caught.value)


def test_a_host_that_is_too_small():
    planned, args = compiled(host="20kB")
    with pytest.raises(remat.torch.TorchError, match=r"the host has 19\.54 KiB, and the optimizer keeps .* there: .*"):
        planned(*args)
    planned, args = compiled("100kB")
    with pytest.raises(
        remat.torch.TooSmallError, match="infeasible within 100kB on the device and 1GB at the host, proved"
    ):
        planned(*args)
    net, x = network(), batches()[0]
    room = sum(parameter.nbytes for parameter in net.parameters()) + 8
    mine = remat.torch.host_optimizer(net, torch.optim.SGD, host=room, lr=0.1)
    with pytest.raises(remat.torch.TorchError, match=r"the gradient of 4\.bias takes 20 B at the host, which has 8 B"):
        net(x).mean().backward()
    mine.step()


def test_sparse_gradients_and_other_optimizers():
    net = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1))
    mine = remat.torch.host_optimizer(net, torch.optim.SGD, host="1MB", lr=0.1)
    with pytest.raises(remat.torch.TorchError, match=r"the gradient of 0\.weight is sparse"):
        net(torch.tensor([1, 2])).mean().backward()
    mine.step()
    later = remat.torch.host_optimizer(net, torch.optim.SGD, host="1MB", lr=0.1)  # takes the gradients from now on
    net[1](torch.randn(2, 3)).mean().backward()
    assert later.slots[id(net[1].weight)].update is not None
    assert mine.slots[id(net[1].weight)].update is None
    later.step()


def test_two_optimizers_share_a_module():
    """The latest optimizer takes only the gradients of its parameters."""
    one, two = network(), network()
    theirs = torch.optim.SGD(one[:4].parameters(), lr=0.1), torch.optim.AdamW(one[4].parameters(), lr=0.01)
    first = remat.torch.host_optimizer(two, torch.optim.SGD, host="1MB", lr=0.1)
    with pytest.raises(remat.torch.TorchError, match=r"a copy of 0\.weight takes"):
        remat.torch.host_optimizer(two, torch.optim.SGD, host="1kB", lr=0.1)  # it takes nothing over
    last = [{"params": list(two[4].parameters())}]
    for _ in range(2):
        later = remat.torch.host_optimizer(two, torch.optim.AdamW, host="1MB", lr=0.01, parameters=last)
    for x in batches(2):
        for net, optimizers in ((one, theirs), (two, (first, later))):
            net(x).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        assert same(one, two)
    assert all(len(parameter._post_accumulate_grad_hooks) == 1 for parameter in two.parameters())


def test_two_optimizers_share_a_planned_module():
    planned, args = compiled()
    other, held = copy.deepcopy(planned.net), list(planned.net.parameters())
    first = remat.torch.host_optimizer(planned, torch.optim.SGD, lr=0.1, parameters=[{"params": held[:2]}])
    later = remat.torch.host_optimizer(planned, torch.optim.SGD, lr=0.2, parameters=[{"params": held[2:]}])
    state = torch.get_rng_state()
    planned(*args).backward()
    first.step()
    later.step()
    torch.set_rng_state(state)
    reference = remat.torch.compile(models.Loss(other))
    reference(*args).backward()
    theirs = list(other.parameters())
    torch.optim.SGD([{"params": theirs[:2]}, {"params": theirs[2:], "lr": 0.2}], lr=0.1).step()
    assert all(torch.equal(*pair) for pair in zip(theirs, held, strict=True))


def test_a_group_that_does_not_fit_is_not_added():
    net = network()
    room = sum(parameter.nbytes for parameter in net[0].parameters()) + 100
    mine = remat.torch.host_optimizer(
        net, torch.optim.SGD, host=room, lr=0.1, parameters=[{"params": list(net[0].parameters())}]
    )
    with pytest.raises(remat.torch.TorchError, match=r"a copy of 4\.weight takes"):
        mine.add_param_group({"params": [net[4].bias, net[4].weight]})
    assert mine.memory.used == sum(mine.host_bytes.values())
    assert len(mine.state_dict()["param_groups"]) == 1


class LateEvent:
    """A copy that happens when the compute stream waits for it; it holds its source as a stream does: not at all."""

    def __init__(self, tensor, target):
        self.source, self.target = StorageWeakRef(tensor.untyped_storage()), target
        self.like = (tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride())
        self.done = threading.Event()

    def synchronize(self):
        assert self.done.wait(30)

    def copy(self):
        storage = torch.UntypedStorage._new_with_weak_ptr(self.source.cdata)
        assert storage is not None, "a gradient is freed after its copy"
        dtype, *shape = self.like
        self.target.copy_(torch.empty(0, dtype=dtype).set_(storage, *shape))
        self.done.set()


class LateLink(slots.Link):
    waits = 0

    def send(self, tensor, target):
        return LateEvent(tensor, target)

    def wait(self, event):
        LateLink.waits += 1
        event.copy()


@pytest.mark.parametrize("factory", [models.mlp, models.conv, pytest.param(models.unet, marks=pytest.mark.slow)])
def test_gradients_live_until_the_wait_for_their_copies(factory, monkeypatch):
    monkeypatch.setattr("remat.bridges.torch.host_updates.optimizer.link_for", lambda _: LateLink())
    LateLink.waits = 0
    module, args, kwargs = models.make(factory)
    other, state = copy.deepcopy(module), torch.get_rng_state()
    planned = remat.torch.compile(module, "60%", optimizer="sgd", **AT_HOST)
    mine = remat.torch.host_optimizer(planned, torch.optim.SGD, lr=0.1)
    planned(*args, **kwargs).backward()
    mine.step()
    torch.set_rng_state(state)
    reference = remat.torch.compile(other)
    reference(*args, **kwargs).backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert LateLink.waits == len(list(module.parameters()))
    assert same(module, other)


def test_streams_hold_gradients_until_they_are_waited_for(monkeypatch):
    """The interface to CUDA with stand-ins: order of waits and values; no device has run it."""
    compute = on_the_cpu(monkeypatch)
    monkeypatch.setattr(slots, "_pinned", lambda shape, kind: torch.empty(shape, dtype=kind))
    links = []

    def link_for(device):
        links.append(slots.Streams(device))
        return links[-1]

    monkeypatch.setattr("remat.bridges.torch.host_updates.optimizer.link_for", link_for)
    one, two = network(), network()
    plain = torch.optim.AdamW(one.parameters(), lr=0.01)
    mine = remat.torch.host_optimizer(two, torch.optim.AdamW, host="1MB", lr=0.01)
    assert equal_steps(trained(one, plain, batches()), trained(two, mine, batches()))
    (link,) = links
    count = len(list(two.parameters()))
    assert len(link.out.waits) == len(link.back.waits) == STEPS * count
    assert len(compute.waits) == STEPS * count  # for parameters that return
    assert not link.leaving  # gradients do not stay on the device until the next backward
