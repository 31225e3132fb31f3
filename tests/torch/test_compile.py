"""The two graphs of a plan under `torch.compile`: three steps of an optimizer as PyTorch does them, within the peak."""

import copy
import json
import re

import pytest
import torch

import remat
import remat.torch
from remat.bridges.torch.graph_emission import emit
from remat.bridges.torch.measure import LiveStorages
from tests.torch import models
from tests.torch.models import Net
from tests.torch.studies import SHARES, WORK, emits_what_was_planned, equal, study

CLOSE = 64


def train(module, found, steps=3):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = models.loss_of(module(*found.args, **found.kwargs))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    return losses


def live_peak(module, found):
    """Peak of live storages in one step, while the caller holds the module's result."""
    module.zero_grad()
    live = LiveStorages([*module.parameters(), *module.buffers(), *found.args, *found.kwargs.values()])
    with live:
        returned = module(*found.args, **found.kwargs)
        models.loss_of(returned).backward()
    module.zero_grad()
    return live.peak


@pytest.fixture(scope="module", params=models.NETWORKS, ids=lambda factory: factory.__name__)
def trained(request):
    found = study(request.param)
    plain = copy.deepcopy(found.module)
    return found, train(plain, found), plain.state_dict()


@pytest.mark.parametrize("share", SHARES)
def test_three_steps_are_those_of_pytorch(trained, share, tmp_path):
    found, losses, state = trained
    path = tmp_path / "plan.json"
    remat.torch.plan_of(found.captured, found.plans[share]).save(path)
    module = copy.deepcopy(found.module)
    module.load_state_dict(found.start)
    planned = remat.torch.compile(module, plan=path)
    assert all(map(torch.equal, train(planned, found), losses))
    assert equal(planned.state_dict(), state)
    assert planned.plan.source == str(path)
    assert live_peak(planned, found) <= planned.plan.peak + CLOSE


@pytest.mark.parametrize("share", SHARES)
def test_the_graphs_hold_the_planned_runs_and_views(trained, share):
    captured = trained[0].captured
    runs = remat.torch.plan_of(captured, trained[0].plans[share]).runs
    emits_what_was_planned(captured, runs, emit(captured.joint, runs))


@pytest.mark.parametrize("factory", [models.mlp, models.conv, models.unet], ids=lambda factory: factory.__name__)
def test_a_budget_is_kept(factory):
    found = study(factory)
    module = copy.deepcopy(found.module)
    static = sum(found.captured.static_bytes().values())
    budget = static + found.plans[0.5].peak_memory["memory"]
    planned = remat.torch.compile(module, budget=budget, algorithm="dag-auto", options=WORK)
    assert planned.plan is None
    planned(*found.args, **found.kwargs).backward()
    plan = planned.plan
    assert plan.peak <= budget
    assert len(plan.runs) > len(set(plan.runs))
    assert sum(plan.split.values()) == plan.peak
    assert f"{plan.overhead:.2%}" in plan.summary
    assert re.search(r"; at the peak (gradients \S+ \w+, )?activations \S+ \w+$", plan.summary.splitlines()[0])
    assert live_peak(planned, found) <= budget - static + CLOSE


def test_two_backwards_add_up_as_predicted():
    found = study(models.mlp)
    module = copy.deepcopy(found.module)
    planned = remat.torch.compile(module, accumulate=True)
    planned(*found.args).backward()
    accumulated = planned.plan.split["accumulated"]
    assert accumulated == sum(tensor.nbytes for tensor in module.parameters())
    grads = [tensor.grad for tensor in module.parameters()]
    live = LiveStorages([*module.parameters(), *found.args, *grads])
    with live:
        planned(*found.args).backward()
    split = planned.plan.split
    assert live.peak <= split["gradients"] + split["activations"] + CLOSE


def test_the_module_stays_itself():
    module = Net()
    planned = remat.torch.compile(module)
    assert type(planned) is Net
    assert list(planned.state_dict()) == list(module.state_dict())
    assert planned.one is module.one
    planned(torch.randn(4, 8)).backward()
    assert module.one.weight.grad is not None
    assert planned is module
    assert module.plan is not None


def test_each_shape_has_its_plan_and_evaluation_passes_through():
    planned = remat.torch.compile(Net(), budget="100%")
    plans = []
    for size in (8, 8, 5, 8):
        planned(torch.randn(size, 8)).backward()
        plans.append(planned.plan)
    assert plans[0] is plans[1]
    assert plans[2] is not plans[0]
    with torch.no_grad():
        x = torch.randn(3, 8)
        assert torch.equal(planned(x), planned.eval()(x))
    assert planned.plan is plans[3]


def test_a_cached_plan_is_not_solved_again(tmp_path, monkeypatch):
    x = torch.randn(64, 8)
    choices = {"budget": "100%", "cache": tmp_path}
    first = remat.torch.compile(Net(), **choices)
    first(x).backward()
    assert first.plan.source == "solved"
    monkeypatch.setattr("remat.bridges.torch.planning.solve", None)
    second = remat.torch.compile(Net(), **choices)
    second(x).backward()
    assert second.plan.source == "cache"
    assert second.plan.runs == first.plan.runs
    third = remat.torch.compile(Net(), budget="90%", cache=tmp_path)
    with pytest.raises(Exception, match="'NoneType' object is not callable"):
        third(x)


def test_a_plan_of_another_program_is_refused(tmp_path):
    x, path = torch.randn(64, 8), tmp_path / "plan.json"
    planned = remat.torch.compile(Net())
    planned(x).backward()
    planned.plan.save(path)
    document = json.loads(path.read_text())
    assert document["schema"] == "remat.plan/1"
    assert document["torch"] == torch.__version__
    with pytest.raises(remat.torch.TorchError, match=r"the plan is for another program; operator \d+: here"):
        remat.torch.compile(Net(), plan=path)(torch.randn(32, 8))
    path.write_text('{"schema": "remat.schedule/1"}')
    with pytest.raises(remat.torch.TorchError, match="expected a plan"):
        remat.torch.compile(Net(), plan=path)(x)


def test_a_budget_that_is_too_small_says_what_would_do():
    with pytest.raises(
        remat.torch.TorchError, match=r"infeasible within 2kB, proved .*: the (?:minimum|smallest) budget .* weights"
    ):
        remat.torch.compile(Net(), budget="2kB", algorithm="dag-auto", options=WORK)(torch.randn(64, 8))
    with pytest.raises(remat.torch.TorchError, match="is all reserve"):
        remat.torch.compile(Net(), budget="2kB", reserve="1MB")(torch.randn(64, 8))
    with pytest.raises(remat.OptionError, match="no such option"):
        remat.torch.compile(Net(), budgets="2kB")


@pytest.mark.parametrize(
    "wrong", [{"budget": "60mb"}, {"budget": -7}, {"budget": ["1GB", "x%"]}, {"reserve": "1gb"}], ids=str
)
def test_a_size_is_refused_before_anything_is_compiled(wrong):
    makers = [remat.torch.Choices, remat.torch.backend, lambda **given: remat.torch.compile(Net(), **given)]
    for make in (*makers, remat.torch.configure):
        with pytest.raises(remat.OptionError, match=rf"\A{next(iter(wrong))}: .{{10,100}}\Z"):
            make(**wrong)


def test_a_budget_of_the_environment_is_refused_where_the_name_is_looked_up(monkeypatch):
    from remat.bridges.torch import backend

    monkeypatch.setattr(backend, "_CONFIGURED", {})
    monkeypatch.setenv("REMAT_TORCH_BUDGET", "60mb")
    with pytest.raises(remat.OptionError, match=r"\AREMAT_TORCH_BUDGET: '60mb' has an unknown unit"):
        torch.compile(Net(), backend="remat")
    monkeypatch.setenv("REMAT_TORCH_BUDGET", "60MB")
    torch.compile(Net(), backend="remat")


def test_what_lies_in_memory_throughout_may_be_text():
    found = study(models.mlp).captured
    whole = found.instance(static=2000, optimizer="adam").static_memory
    assert found.instance(static="2kB", optimizer="adam").static_memory == whole > 2000
    assert found.document(static="2kB")["static_memory"] == 2000
    for make in (found.instance, found.document):
        with pytest.raises(remat.OptionError, match="static: '2kb' has an unknown unit"):
            make(static="2kb")


def test_the_backend_has_a_name(monkeypatch):
    from remat.bridges.torch import backend

    monkeypatch.setattr(backend, "_CONFIGURED", {})
    assert "remat" in torch._dynamo.list_backends()
    x = torch.randn(4, 8)
    with pytest.raises(Exception, match="no budget: set REMAT_TORCH_BUDGET"):
        torch.compile(Net(), backend="remat")(x)
    monkeypatch.setenv("REMAT_TORCH_BUDGET", "1MB")
    module = Net()
    torch.compile(module, backend="remat")(x).backward()
    right = copy.deepcopy(module)
    right.zero_grad()
    right(x).backward()
    assert all(
        torch.equal(one.grad, two.grad) for one, two in zip(module.parameters(), right.parameters(), strict=True)
    )
    monkeypatch.delenv("REMAT_TORCH_BUDGET")
    remat.torch.configure(budget="1MB")
    torch.compile(Net(), backend="remat")(x).backward()


def test_the_name_and_a_budget_in_the_environment_suffice(monkeypatch):
    """GPT-2 calls a logger where it is given labels, which would break the graph."""
    from remat.bridges.torch import backend

    monkeypatch.setattr(backend, "_CONFIGURED", {})
    monkeypatch.setenv("REMAT_TORCH_BUDGET", "10MB")
    found = study(models.gpt2)
    module = copy.deepcopy(found.module)
    with torch._dynamo.config.patch(ignore_logging_functions=set()):
        compiled = torch.compile(module, backend="remat", dynamic=False)
        torch.manual_seed(3)
        compiled(**found.kwargs).loss.backward()
    assert equal({name: tensor.grad for name, tensor in module.named_parameters()}, found.eager()[1])


def test_double_backward_is_refused():
    module = Net()
    loss = remat.torch.compile(module, budget="1MB")(torch.randn(6, 8))
    (gradient,) = torch.autograd.grad(loss, module.one.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.square().sum().backward()


def test_two_epochs_with_a_smaller_last_batch_and_evaluation_between():
    """As a trainer does it, by the name of the backend."""
    torch.manual_seed(5)
    data, plain = torch.randn(21, 8), Net()
    module = copy.deepcopy(plain)
    planner = remat.torch.backend("100%")
    compiled = torch.compile(module, backend=planner, dynamic=False)
    losses = []
    for net, owner in ((plain, plain), (compiled, module)):
        optimizer, seen = torch.optim.AdamW(owner.parameters(), lr=0.01), []
        for _ in range(2):
            owner.train()
            for batch in data.split(8):
                optimizer.zero_grad()
                loss = net(batch)
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
            owner.eval()
            with torch.no_grad():
                seen.append(net(data).item())
        losses.append(seen)
    assert losses[0] == losses[1]
    assert equal(plain.state_dict(), module.state_dict())
    assert len({plan.fingerprint for plan in planner.plans}) == 2


def test_partitions_of_others_are_judged():
    from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition

    found = study(models.unet)
    outputs = len(found.captured.recording.outputs)
    kept = found.plans["keep-all"]
    for partition in (default_partition, min_cut_rematerialization_partition):
        joint = copy.deepcopy(found.captured.graph)
        forward, backward = partition(joint, [], num_fwd_outputs=outputs)
        judged = remat.torch.judge(found.captured, forward, backward)
        assert judged.makespan >= kept.makespan
        if partition is default_partition:
            assert judged.makespan == kept.makespan
