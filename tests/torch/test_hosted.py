"""Schedules with a host, executed along their programs: the values of PyTorch to the bit, at the verified peak."""

import copy
from functools import cache

import pytest
import torch

import remat
import remat.torch
from remat.bridges.torch.hosted_execution import moved_of
from tests.torch import models
from tests.torch.studies import Study, equal

CLOSE = 64
CASES = [
    (models.mlp, 0.7, 2, "offload-greedy"),
    (models.mlp, 0.5, 20, "dag-offload-best"),
    (models.conv, 0.6, 2, "offload-greedy"),
    (models.conv, 0.3, 20, "dag-offload-best"),
    (models.shared, 0.5, 5, "offload-greedy"),
    (models.unet, 0.7, 2, "offload-greedy"),
    (models.unet, 0.5, 20, "dag-offload-best"),
    (models.unet, 0.3, 1, "dag-offload-best"),
    (models.half, 0.5, 5, "offload-greedy"),
    (models.vit, 0.7, 2, "offload-greedy"),
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
    options = {"bound": False} if algorithm == "offload-greedy" else {}
    given = {"machine": machine_of(rate), "budget": budget, "algorithm": algorithm, "options": options}
    return remat.solve(instance, **given, time_limit=1)


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
