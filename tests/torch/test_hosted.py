"""Schedules with a host, executed along their programs: the values of PyTorch to the bit, at the verified peak."""

import copy
from functools import cache

import pytest
import torch

import remat
import remat.torch
from remat.bridges.torch import transfers
from remat.bridges.torch.hosted_execution import HostedInterpreter, moved_of
from remat.bridges.torch.interpreter import given_tensors
from remat.bridges.torch.measure import LiveStorages, unseen
from remat.bridges.torch.transfers import Away, measured_rate
from remat.errors import OptionError
from tests.torch import models
from tests.torch.streams import on_the_cpu
from tests.torch.studies import Study, equal

CLOSE = 64
WORK = {"iterations": 1}
CASES = [
    (models.mlp, 0.7, 2, "offload-greedy"),
    (models.mlp, 0.5, 20, "dag-offload-best"),
    (models.conv, 0.6, 2, "offload-greedy"),
    (models.conv, 0.3, 20, "dag-offload-best"),
    (models.shared, 0.5, 5, "offload-greedy"),
    (models.unet, 0.7, 2, "offload-greedy"),
    (models.unet, 0.5, 20, "dag-offload-best"),
    (models.half, 0.5, 5, "offload-greedy"),
    (models.vit, 0.5, 20, "dag-offload-best"),
    (models.gpt2, 0.7, 2, "offload-greedy"),
]


@cache
def study(factory):
    """Capture a network, without plans for one memory."""
    module, args, kwargs = models.make(factory)
    captured = remat.torch.capture(module, *args, **kwargs)
    kept = remat.solve(captured.instance(), algorithm="keep-all")
    return Study(module, args, kwargs, captured, copy.deepcopy(module.state_dict()), {"keep-all": kept})


def machine_of(rate):
    ends = (("device", "host"), ("host", "device"))
    return {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [{"source": one, "target": two, "bandwidth": f"{rate}GB/s"} for one, two in ends],
    }


def planned(found, share, rate, algorithm):
    kept = found.plans["keep-all"]
    low, top = kept.memory_bounds["memory"].size, kept.peak_memory["memory"]
    budget = {"device": int(low + share * (top - low))}
    instance = found.captured.instance()
    options = {"offload-greedy": {"bound": False}, "dag-offload-best": WORK}.get(algorithm, {})
    given = {"machine": machine_of(rate), "budget": budget, "algorithm": algorithm, "options": options}
    return remat.solve(instance, **given)


@pytest.mark.parametrize(("factory", "share", "rate", "algorithm"), CASES)
def test_a_program_gives_what_pytorch_gives_at_the_verified_peak(factory, share, rate, algorithm):
    found = study(factory)
    result = planned(found, share, rate, algorithm)
    moved = moved_of(found.captured, result)
    assert moved is not None
    assert moved.program.peak_memory() == moved.result.peak_memory
    assert moved.simulated == pytest.approx(moved.result.makespan, rel=0.02)
    loss, gradients, buffers = found.eager()
    for schedule in (result, result.to_dict()):
        found.reset()
        done = remat.torch.execute(found.captured, schedule)
        assert torch.equal(done.loss, loss)
        assert equal(dict(done.gradients), gradients)
        assert equal(dict(found.module.named_buffers()), buffers)
        if schedule is result:
            assert abs(done.live_peak - moved.result.peak_memory["device"]) <= CLOSE


def test_what_the_caller_holds_does_not_leave():
    found = study(models.named)
    result = planned(found, 1, 1, "keep-all")
    document = result.to_dict()
    logits = next(name for name in found.captured.joint.returned if found.captured.joint.values[name] > 1000)
    copies = [
        {"copy": logits, "from": one, "to": two, "drop": True} for one, two in (("device", "host"), ("host", "device"))
    ]
    steps = [{key: value for key, value in step.items() if key != "start"} for step in document["steps"]]
    turn = next(index for index, step in enumerate(steps) if step.get("run") == "@backward")
    later = next(i for i, step in enumerate(steps) if i > turn and logits not in reads(found, steps[i + 1 :]))
    document["steps"] = [*steps[: later + 1], *copies, *steps[later + 1 :]]
    with pytest.raises(remat.torch.TorchError, match="which the module returns, so that its caller holds it"):
        remat.torch.execute(found.captured, document)


def reads(found, steps):
    return {value for step in steps if "run" in step for value in found.captured.joint.tasks[step["run"]].reads}


@pytest.mark.parametrize(
    ("factory", "share"),
    [(models.mlp, 0.35), (models.conv, 0.35), (models.shared, 0.5), (models.unet, 0.5), (models.named, 0.5)],
)
def test_a_compiled_module_trains_within_its_budget(factory, share, tmp_path):
    found = study(factory)
    kept = found.plans["keep-all"]
    fixed = sum(found.captured.static_bytes().values())
    low, top = kept.memory_bounds["memory"].size, kept.peak_memory["memory"]
    budget = int(low + share * (top - low)) + fixed
    module = copy.deepcopy(found.module)
    planned = remat.torch.compile(module, budget, host="1GB", link="20GB/s", options=WORK)
    planned(*found.args, **found.kwargs)
    loss, gradients, buffers = found.eager()
    tensors = [value for value in found.kwargs.values() if isinstance(value, torch.Tensor)]
    for _ in range(2):
        module.load_state_dict(found.start)
        module.zero_grad()
        torch.manual_seed(3)
        live = LiveStorages((*module.parameters(), *module.buffers(), *found.args, *tensors))
        with live:
            made = models.loss_of(planned(*found.args, **found.kwargs))
            made.backward()
        assert torch.equal(made, loss)
        assert equal({name: part.grad for name, part in module.named_parameters()}, gradients)
        assert equal(dict(module.named_buffers()), buffers)
        assert live.peak <= planned.plan.peak - fixed + CLOSE
        assert planned.plan.peak <= budget
    returned = sum(found.captured.joint.values[value] for value in found.captured.joint.returned)
    assert live.peak >= planned.plan.peak - fixed - returned - CLOSE
    assert planned.plan.program.copies > 0
    assert "copies start between runs" in planned.plan.summary
    planned.plan.save(tmp_path / "plan.json")
    again = remat.torch.compile(copy.deepcopy(found.module), plan=tmp_path / "plan.json")
    with pytest.raises(remat.torch.TorchError, match="the plan has a host; plan again with host"):
        again(*found.args, **found.kwargs)


def test_a_forward_before_the_backward_of_another_one():
    """Buffers belong to their step, so that two losses may be summed."""
    found = study(models.shared)
    kept = found.plans["keep-all"].peak_memory["memory"] + sum(found.captured.static_bytes().values())
    module = copy.deepcopy(found.module)
    planned = remat.torch.compile(module, int(0.8 * kept), host="1GB", link="20GB/s", options=WORK)
    planned(*found.args)
    module.load_state_dict(found.start)
    (planned(*found.args) + planned(*found.args)).backward()
    other = remat.torch.compile(copy.deepcopy(found.module))  # recomputes nothing, and adds gradients in the same order
    other.load_state_dict(found.start)
    (other(*found.args) + other(*found.args)).backward()
    assert planned.plan.program.copies > 0
    pairs = zip(module.parameters(), other.parameters(), strict=True)
    assert all(torch.equal(one.grad, two.grad) for one, two in pairs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": 0}, "host: the host has no memory"),
        ({"host": "much"}, "host: "),
        ({"host": "1GB", "link": 0}, "link: a bandwidth of 0 would never transfer anything"),
        ({"link": "1GB/s"}, "link: a link needs the memory of a host"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(options, message):
    with pytest.raises(OptionError) as caught:
        remat.torch.compile(models.make(models.mlp)[0], "1GB", **options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_budgets_that_no_host_helps_are_refused_with_what_is_fixed():
    found = study(models.mlp)
    planned = remat.torch.compile(copy.deepcopy(found.module), "100kB", host="1GB", link="1GB/s", options=WORK)
    with pytest.raises(remat.torch.TooSmallError, match=r"infeasible within 100kB on the device .* proved .* fixed"):
        planned(*found.args)


def test_a_rate_is_measured_once_if_no_link_is_given(monkeypatch):
    rate = measured_rate(torch.device("cpu"), 1 << 16)
    assert rate > 0
    monkeypatch.setattr(transfers, "median_time", lambda *_: 1.0)
    assert measured_rate(torch.device("cpu"), 1 << 16) == rate
    assert measured_rate(torch.device("cpu"), 1 << 15) == 1 << 15


class Late:
    """Copies that happen only when something waits for them: as late as streams may run them."""

    def __init__(self):
        self.late = {}

    def offload(self, tensors):
        tensor = next(iter(tensors.values()))
        shapes = {name: (t.dtype, t.storage_offset(), t.size(), t.stride()) for name, t in tensors.items()}
        away = Away(None, shapes, tensor.device, tensor.untyped_storage().nbytes())
        self.late[id(away)] = [lambda: setattr(away, "buffer", tensor.untyped_storage()), tensor]
        return away

    def reload(self, away):
        made = {}
        fresh = torch.empty(away.size, dtype=torch.uint8).fill_(255).untyped_storage()
        for name, (dtype, offset, size, stride) in away.shapes.items():
            made[name] = torch.empty(0, dtype=dtype).set_(fresh, offset, size, stride)
        before = self.late.pop(id(away), [None])[0]

        def copy():
            if before is not None:
                before()
                self.keep(away)
            with unseen():
                fresh.copy_(away.buffer)

        self.late[id(away)] = [copy, None]
        return made

    def keep(self, away):
        with unseen():
            away.buffer = away.buffer.clone()

    def wait(self, away):
        act, tensor = self.late.pop(id(away), (None, None))
        if act is not None:
            act()
            if tensor is not None:
                self.keep(away)

    def release(self, away):
        assert id(away) not in self.late, "a buffer is given back after its copy"
        away.buffer = None


@pytest.mark.parametrize("factory", [models.mlp, models.conv, models.unet])
def test_waits_suffice_however_late_copies_happen(factory):
    """A source lives until the wait for its copy, and nothing reads a target before."""
    found = study(factory)
    moved = moved_of(found.captured, planned(found, 0.5, 20, "offload-greedy"))
    assert moved is not None
    found.reset()
    interpreter = HostedInterpreter(found.captured, given_tensors(found.captured), moved.program, Late())
    done = interpreter.run(interpreter.steps())
    loss, gradients, _ = found.eager()
    assert torch.equal(done.loss, loss)
    assert equal(dict(done.gradients), gradients)
    assert abs(done.live_peak - moved.result.peak_memory["device"]) <= CLOSE


def test_streams_use_few_pinned_buffers_again(monkeypatch):
    """The interface to CUDA with stand-ins: order of waits, buffers and values; no device has run it."""
    compute = on_the_cpu(monkeypatch)
    monkeypatch.setattr(transfers, "_pinned", lambda size: torch.empty(size, dtype=torch.uint8))
    found = study(models.unet)
    moved = moved_of(found.captured, planned(found, 0.5, 20, "offload-greedy"))
    host = moved.result.peak_memory["host"]
    streams = transfers.Streams(torch.device("cpu"), host)
    found.reset()
    interpreter = HostedInterpreter(found.captured, given_tensors(found.captured), moved.program, streams)
    done = interpreter.run(interpreter.steps())
    assert equal(dict(done.gradients), found.eager()[1])
    assert streams.taken <= host
    copies = moved.program.copies
    assert len(streams.out.waits) + len(streams.back.waits) == copies + copies // 2  # compute; reloads also an offload
    waits = sum(len(one.copies) for one in moved.program.operations if hasattr(one, "copies"))
    assert len(compute.waits) == waits <= copies
    with pytest.raises(remat.torch.TorchError, match="the host has 0 B for buffers"):
        transfers.Streams(torch.device("cpu"), 0).offload({"x": torch.ones(4)})
