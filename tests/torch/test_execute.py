"""A schedule, executed: gradients, loss and buffers as PyTorch's own to the bit, and the peak that was verified."""

import copy

import pytest
import torch

import remat
import remat.torch
from remat.bridges.torch.graph_emission import emit
from remat.bridges.torch.interpreter import from_mask, mask_scale
from tests.torch import models
from tests.torch.studies import SHARES, WORK, equal, reruns, solve, study

CLOSE = 64
BIGGER = tuple(factory for factory in models.NETWORKS if factory not in (models.mlp, models.conv))


@pytest.fixture(scope="module", params=models.NETWORKS, ids=lambda factory: factory.__name__)
def known(request):
    found = study(request.param)
    return found, found.eager()


@pytest.mark.parametrize("share", SHARES)
def test_a_schedule_gives_what_pytorch_gives_at_the_verified_peak(known, share):
    found, (loss, gradients, buffers) = known
    plan = found.plans[share]
    found.reset()
    done = remat.torch.execute(found.captured, plan)
    assert torch.equal(done.loss, loss)
    assert equal(dict(done.gradients), gradients)
    assert equal(dict(found.module.named_buffers()), buffers)
    assert abs(done.live_peak - plan.peak_memory["memory"]) <= CLOSE
    assert sum(done.runs.values()) - len(done.runs) == reruns(plan)


def test_plans_below_keep_all_run_things_again(known):
    found, _ = known
    assert reruns(found.plans["keep-all"]) == 0
    assert reruns(found.plans[0]) > 0
    assert found.plans[0].peak_memory["memory"] < found.plans["keep-all"].peak_memory["memory"]


@pytest.mark.parametrize("factory", [models.vit, models.conv], ids=lambda factory: factory.__name__)
def test_a_gradient_that_is_dropped_unread_and_made_again_takes_no_memory_between(factory):
    """A schedule may contain useless runs; the interpreter and the emitted graphs do not keep their results."""
    found = study(factory)
    joint = found.captured.joint
    read = {value for task in joint.tasks.values() for value in task.reads}
    ends = [
        task
        for task in joint.tasks.values()
        if task.phase == "backward" and task.again and set(task.writes) <= set(joint.kept) - read and task.writes
    ]
    wide = max(ends, key=lambda task: sum(joint.values[value] for value in task.writes))
    runs = [task.name for task in joint.tasks.values() if not task.from_mask]
    plan = remat.schedule_of(found.captured.instance(), [*runs, wide.name])
    found.reset()
    done = remat.torch.execute(found.captured, plan)
    assert done.runs[wide.name] == 2
    assert abs(done.live_peak - plan.peak_memory["memory"]) <= CLOSE
    assert equal(dict(done.gradients), found.eager()[1])
    emitted = emit(joint, [*runs, wide.name])
    assert emitted.backward.runs.count(wide.name) == 1
    assert emitted.backward.runs[-1] == wide.name


def test_a_document_is_verified_and_executed():
    found = study(models.conv)
    document = found.plans[0].to_dict()
    found.reset()
    done = remat.torch.execute(found.captured, document)
    assert equal(dict(done.gradients), found.eager()[1])
    del document["steps"][3]
    with pytest.raises(remat.RematError, match="breaks rules"):
        remat.torch.execute(found.captured, document)


def test_a_schedule_of_another_program_is_refused():
    with pytest.raises(remat.torch.TorchError, match="another program"):
        remat.torch.execute(study(models.conv).captured, study(models.mlp).plans["keep-all"])


def test_other_inputs_of_the_same_shape():
    found = study(models.conv)
    torch.manual_seed(7)
    args = (torch.randn_like(found.args[0]), found.args[1])
    found.reset()
    done = remat.torch.execute(found.captured, found.plans[0.5], (args, {}))
    found.reset()
    found.module.zero_grad()
    loss = found.module(*args)
    loss.backward()
    assert torch.equal(done.loss, loss.detach())
    assert equal(dict(done.gradients), {name: tensor.grad for name, tensor in found.module.named_parameters()})
    found.module.zero_grad()


def test_the_allocator_sees_workspaces_besides():
    found = study(models.conv)
    found.reset()
    done = remat.torch.execute(found.captured, found.plans["keep-all"], allocator=True)
    assert done.allocator_peak >= done.live_peak


def test_measured_costs_know_every_operator():
    found = study(models.conv)
    found.reset()
    before = torch.get_rng_state()
    costs = remat.torch.measure(found.captured, repeats=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert equal(found.module.state_dict(), found.start)
    instance = found.captured.instance(costs)
    assert "measured on cpu" in instance.source
    assert any(task.workspace for task in instance.tasks)


def test_a_plan_with_times_that_are_measured_on_the_way(tmp_path):
    found = study(models.conv)
    module, before = copy.deepcopy(found.module), torch.get_rng_state()
    module.load_state_dict(found.start)
    choices = {"costs": "measure", "cache": tmp_path, "algorithm": "dag-auto", "options": WORK}
    planned = remat.torch.compile(module, "100%", **choices)
    loss = planned(*found.args)
    assert torch.equal(torch.get_rng_state(), before)
    loss.backward()
    assert equal({name: tensor.grad for name, tensor in module.named_parameters()}, found.eager()[1])
    assert equal(dict(module.named_buffers()), found.eager()[2])
    again = remat.torch.compile(copy.deepcopy(found.module), "100%", **choices)
    again(*found.args).backward()
    assert again.plan.source == "cache"
    assert planned.plan.schedule["makespan"] > found.plans["keep-all"].makespan, "no CPU is as quick as the roofline's"


@pytest.mark.parametrize(
    "factory",
    [models.mlp, models.conv, *(pytest.param(f, marks=pytest.mark.slow) for f in BIGGER)],
    ids=lambda factory: factory.__name__,
)
def test_the_allocator_peak_is_the_predicted_one_with_measured_workspaces(factory):
    found = study(factory)
    found.reset()
    instance = found.captured.instance(remat.torch.measure(found.captured, repeats=1))
    kept = remat.solve(instance, algorithm="keep-all")
    top, low = kept.peak_memory["memory"], kept.memory_bounds["memory"].size
    smaller = (solve(instance, int(low + share * (top - low))) for share in (0.5, 0.7, 0.9))
    less = next(plan for plan in smaller if plan.columns is not None)
    for plan in (kept, less):
        found.reset()
        done = remat.torch.execute(found.captured, plan, allocator=True)
        assert done.allocator_peak == pytest.approx(plan.peak_memory["memory"], rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_dropout_from_its_mask_is_dropout_to_the_bit(dtype):
    class Drop(torch.nn.Linear):
        def forward(self, x):
            return torch.nn.functional.dropout(super().forward(x), 0.3).square().sum(dtype=torch.float32)

    torch.manual_seed(0)
    module = Drop(8, 8).to(dtype)
    captured = remat.torch.capture(module, torch.randn(64, 8, dtype=dtype))
    node = next(node for node in captured.recording.nodes if node.dropout)
    read, _, _ = captured.joint.mask_parts(node.name)
    x = torch.randn(64, 8).to(dtype)
    made, mask = torch.ops.aten.native_dropout(x, node.dropout, True)
    assert torch.equal(from_mask(x, mask, mask_scale(captured, read, node.name)), made)
