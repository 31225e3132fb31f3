"""Planted faults: what the rules of the joint graph forbid gives wrong gradients or buffers, and the tests notice."""

import pytest
import torch

import remat
import remat.torch
from remat.bridges.torch.interpreter import Interpreter, given_tensors
from remat.bridges.torch.joint import BOUNDARY
from remat.bridges.torch.plans import Event
from tests.torch import models
from tests.torch.studies import equal, study


def tasks(found):
    return [task.name for task in found.captured.joint.tasks.values() if not task.from_mask]


def run(found, names):
    """Run tasks in order, regardless of the rules, and drop nothing."""
    found.reset()
    given = given_tensors(found.captured)
    done = Interpreter(found.captured, given).run([Event(name) for name in names])
    return dict(done.gradients), {name: tensor.clone() for name, tensor in found.module.named_buffers()}


def again(names, name):
    turn = names.index(BOUNDARY) + 1
    return [*names[:turn], name, *names[turn:]]


def named(found, text):
    return next(name for name in tasks(found) if name.startswith(text))


@pytest.mark.parametrize("factory", [models.mlp, models.bert, models.bert_eager], ids=lambda factory: factory.__name__)
def test_dropout_again_draws_another_mask(factory):
    found = study(factory)
    names, drops = tasks(found), [n.name for n in found.captured.recording.nodes if n.random]
    assert equal(run(found, names)[0], found.eager()[1])
    # Dropout, and whatever else draws: that of attention, too.
    for name in (drops[0], drops[len(drops) // 2]):
        assert not equal(run(found, again(names, name))[0], found.eager()[1]), name
        with pytest.raises(remat.RematError):
            remat.schedule_of(found.captured.instance(), again(names, name))


def test_dropout_in_another_order_draws_other_numbers():
    found = study(models.named)
    names = tasks(found)
    one, two = (names.index(name) for name in ("randn_like", "randn_like_1"))
    names[one], names[two] = names[two], names[one]
    assert equal(run(found, tasks(found))[0], found.eager()[1])
    with pytest.raises(remat.RematError, match="done"):
        remat.schedule_of(found.captured.instance(), names)


def test_a_buffer_written_twice_or_never():
    found = study(models.conv)
    names, write = tasks(found), named(found, "copy_")
    right = found.eager()[2]
    assert equal(run(found, names)[1], right)
    assert not equal(run(found, [name for name in names if name != write])[1], right)
    counter = next(n.name for n in found.captured.recording.nodes if n.operator == "aten.add.Tensor")
    assert not equal(run(found, again(again(names, write), counter))[1], right)
    for wrong in ([name for name in names if name != write], again(names, write), again(names, counter)):
        with pytest.raises(remat.RematError):
            remat.schedule_of(found.captured.instance(), wrong)


def test_new_statistics_of_a_rerun_are_wanted_by_nobody():
    found = study(models.shared)
    joint = found.captured.joint
    first, second = (name for name in tasks(found) if "native_batch_norm_legit" in name)
    assert joint.tasks[first].again
    assert not joint.tasks[second].again
    names = tasks(found)
    assert equal(run(found, again(names, first))[0], found.eager()[1])
    turn = names.index(BOUNDARY) + 1
    wrong = [*names[:turn], first, second, *names[turn:]]
    assert not equal(run(found, wrong)[0], found.eager()[1])


def test_attention_without_dropout_may_run_again():
    found = study(models.vit)
    attention = named(found, "_scaled_dot_product")
    assert found.captured.joint.tasks[attention].again
    assert equal(run(found, again(tasks(found), attention))[0], found.eager()[1])


def test_equal_draws_are_not_merged():
    found = study(models.named)
    drawn = [node.name for node in found.captured.recording.nodes if node.random]
    assert drawn == ["randn_like", "randn_like_1", "rand"]


def test_pytorch_own_budget_draws_another_mask_and_ours_does_not():
    """PyTorch's memory budget of 0.5 reruns dropout without a warning."""
    import torch._functorch.config as config

    found = study(models.mlp)
    right = found.eager()[1]
    with config.patch(activation_memory_budget=0.5):
        compiled = torch.compile(found.module, backend="aot_eager")
        found.reset()
        found.module.zero_grad()
        compiled(*found.args).backward()
        wrong = {name: tensor.grad for name, tensor in found.module.named_parameters()}
    worst = max((wrong[name] - right[name]).norm() / right[name].norm() for name in right)
    assert worst > 0.5
    found.module.zero_grad()
    found.reset()
    assert equal(dict(remat.torch.execute(found.captured, found.plans[0]).gradients), right)
