"""Captured steps and refused modules; an error is one line that names the place in the user's code."""

import pytest
import torch
from torch import nn

import remat
import remat.torch
from remat.generate import generate
from tests.torch import models
from tests.torch.studies import study


def test_every_public_name_is_there():
    assert all(getattr(remat.torch, name) is not None for name in remat.torch.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'train'"):
        remat.torch.train  # noqa: B018


def test_capturing_executes_nothing():
    module, args, kwargs = models.make(models.conv)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state = torch.get_rng_state()
    ignored = set(torch._dynamo.config.ignore_logging_functions)
    remat.torch.capture(module, *args, **kwargs)
    assert torch._dynamo.config.ignore_logging_functions == ignored
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(tensor.grad is None for tensor in module.parameters())


@pytest.mark.parametrize(
    ("factory", "family", "options"), [(models.resnet50, "resnet", {}), (models.vgg19, "vgg", {"depth": "19"})]
)
def test_networks_have_the_peaks_of_the_published_layers(factory, family, options):
    """Which are also those of the training steps of ONNX models (tests/onnx/test_models.py)."""
    with torch.device("meta"):
        module, args, kwargs = factory(batch=1)
    captured = remat.solve(remat.torch.capture(module, *args, **kwargs).instance(), algorithm="keep-all")
    published = remat.solve(generate("dag", family, batch=1, **options), algorithm="keep-all")
    ours, theirs = (sum(one.peak_memory.values()) - one.instance.static_memory for one in (captured, published))
    assert ours == pytest.approx(theirs, rel=0.02)


def test_the_fingerprint_is_of_the_program():
    one, two = (remat.torch.capture(*flat(models.make(models.mlp, seed))) for seed in (0, 1))
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != study(models.conv).captured.fingerprint


def flat(made):
    module, args, kwargs = made
    assert not kwargs
    return (module, *args)


def test_modules_and_lines_are_known():
    rows = study(models.conv).captured.table()
    row = next(row for row in rows if row["operator"] == "aten.convolution.default")
    assert row["module"] == "net.0.0"
    assert row["source"].startswith("models.py:")
    assert row["flops"] == 2 * 16 * 8 * 8 * 8 * 3 * 9
    backward = next(row for row in rows if row["operator"] == "aten.convolution_backward.default")
    assert backward["module"].startswith("net.")


@pytest.mark.parametrize("factory", [models.conv, models.shared, models.named, models.vit], ids=lambda f: f.__name__)
def test_parameters_without_data_make_the_same_program(factory):
    found = study(factory)
    with torch.device("meta"):
        module, args, _ = models.make(factory)
    before = dict(module.named_parameters())
    captured = remat.torch.capture(module, *found.args, **found.kwargs)
    assert captured.fingerprint == found.captured.fingerprint
    assert captured.static_bytes() == found.captured.static_bytes()
    assert all(parameter is before[name] for name, parameter in module.named_parameters())
    plan = remat.solve(captured.instance(), algorithm="keep-all")
    for runs in (remat.torch.execute, lambda captured, _: remat.torch.measure(captured)):
        with pytest.raises(remat.torch.TorchError, match="on the device meta, which cannot run them"):
            runs(captured, plan)
    if factory is models.conv:
        assert remat.torch.capture(module, *args).fingerprint == captured.fingerprint


class Twice(nn.Module):
    """Equal operators, and views of both, those of the second first: each storage once stood for the other."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(6, 6)

    def forward(self, x):
        y = self.one(x)
        a, b = torch.sin(y), torch.sin(y)
        late, early = b.t(), a.t()
        return (late * 2 + early @ y).square().mean()


def test_views_of_merged_operators_are_merged_in_either_order():
    torch.manual_seed(0)
    module, x = Twice(), torch.randn(6, 6)
    captured = remat.torch.capture(module, x)
    assert sum(node.operator == "aten.sin.default" for node in captured.recording.nodes) == 1
    done = remat.torch.execute(captured, remat.solve(captured.instance(), algorithm="keep-all"))
    module(x).backward()
    assert all(torch.equal(done.gradients[name], tensor.grad) for name, tensor in module.named_parameters())


def test_what_lies_in_memory_throughout():
    captured = study(models.conv).captured
    split = captured.static_bytes("adam")
    module = study(models.conv).module
    parameters = sum(tensor.nbytes for tensor in module.parameters())
    assert split["parameter"] == parameters
    assert split["optimizer"] == 2 * parameters
    assert split["input"] == sum(tensor.nbytes for tensor in study(models.conv).args)
    assert captured.instance(static=10, optimizer="adam").static_memory == 10 + 2 * parameters


class Odd(nn.Module):
    """Does what `how` says."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.one = nn.Linear(4, 4)

    def forward(self, x):
        y = self.one(x)
        return getattr(self, self.how)(y)

    def vector(self, y):
        return y.square()

    def breaks(self, y):
        torch._dynamo.graph_break()
        return y.sum()

    def depends(self, y):
        return y[y > 0].sum() if y.sum() > 0 else y.sum()

    def checkpointed(self, y):
        from torch.utils.checkpoint import checkpoint

        return checkpoint(lambda z: torch.tanh(torch.sin(z)), y, use_reentrant=False).sum()

    def fine(self, y):
        return y.square().sum()


X = torch.ones(3, 4)


@pytest.mark.parametrize("how", ["breaks", "depends"])
def test_what_breaks_the_graph_is_named_with_its_line(how):
    with pytest.raises(
        remat.torch.TorchError, match=r"cannot be traced as one graph \(.*test_capture\.py:\d+\)"
    ) as caught:
        remat.torch.capture(Odd(how), X)
    assert "\n" not in str(caught.value)


def test_a_loss_is_a_scalar():
    captured = remat.torch.capture(Odd("vector"), X)
    plan = remat.solve(captured.instance(), algorithm="keep-all")
    with pytest.raises(remat.torch.TorchError, match="the loss is not a scalar"):
        remat.torch.execute(captured, plan)


def test_something_needs_a_gradient():
    with pytest.raises(remat.torch.TorchError, match="no parameter needs a gradient"):
        remat.torch.capture(Odd("fine").requires_grad_(False), X)
    with torch.no_grad(), pytest.raises(remat.torch.TorchError, match="no parameter needs a gradient"):
        remat.torch.capture(Odd("fine"), X)


def test_hooks_are_refused():
    module = Odd("fine")
    handle = module.one.register_full_backward_hook(lambda *_: None)
    with pytest.raises(remat.torch.TorchError, match="one has a backward hook"):
        remat.torch.capture(module, X)
    handle.remove()
    module.one.weight.register_hook(lambda gradient: gradient)
    with pytest.raises(remat.torch.TorchError, match=r"parameter one\.weight has a hook"):
        remat.torch.capture(module, X)


def test_checkpointing_in_the_model_is_ignored_with_a_warning():
    with pytest.warns(UserWarning, match="the model has its own activation checkpointing"):
        captured = remat.torch.capture(Odd("checkpointed"), X)
    assert remat.solve(captured.instance(), algorithm="keep-all").peak_memory["memory"] > 0


def test_operators_without_a_meta_kernel():
    @torch.library.custom_op("remat_tests::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    class Opaque(Odd):
        def fine(self, y):
            return opaque(y).sum()

    with pytest.raises(
        remat.torch.TorchError, match=r"remat_tests::opaque has no meta kernel \(.*test_capture\.py:\d+\)"
    ):
        remat.torch.capture(Opaque("fine"), X)


def test_collectives_run_once_and_are_refused_with_a_host_or_inductor():
    import torch.distributed as distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    class Reduced(Odd):
        def fine(self, y):
            return distributed._functional_collectives.all_reduce(y, "sum", distributed.group.WORLD).sum()

    import torch.distributed._functional_collectives  # noqa: F401

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        captured = remat.torch.capture(Reduced("fine"), X)
        forward, backward = (node for node in captured.recording.nodes if node.collective)
        for shared in (forward, backward):
            assert not captured.tasks[shared.name].again
            assert captured.joint.waits_of(shared.name), "its result is waited for directly after it"
        message = r"^_c10d_functional\.\S+ is a collective \(test_capture\.py:\d+\); plans .* one process$"
        for choices in ({"inductor": True}, {"host": "1GB", "link": "1GB/s"}):
            with pytest.raises(remat.torch.TorchError, match=message):
                remat.torch.compile(Reduced("fine"), "1GB", **choices)(X)
    finally:
        distributed.destroy_process_group()


def test_gradients_of_gradients_are_refused():
    class Penalty(Odd):
        def fine(self, y):
            (gradient,) = torch.autograd.grad(y.square().sum(), self.one.weight, create_graph=True)
            return gradient.square().sum()

    with pytest.raises(remat.torch.TorchError, match=r"^[^\n]*test_capture\.py:\d+[^\n]*$"):
        remat.torch.capture(Penalty("fine"), X)


def test_only_modules_can_be_captured():
    with pytest.raises(remat.torch.TorchError, match=r"expected a torch\.nn\.Module"):
        remat.torch.capture(lambda x: x, X)


class Wrapped(torch.Tensor):
    pass


def test_only_plain_tensors():
    module = Odd("fine")
    module.register_buffer("odd", torch.ones(2).as_subclass(Wrapped))
    with pytest.raises(remat.torch.TorchError, match="odd is a Wrapped"):
        remat.torch.capture(module, X)


def test_old_releases_are_refused():
    from remat.bridges.torch.shim import check_release

    check_release("2.14.1+cu130")
    with pytest.raises(remat.torch.TorchError, match=r"needs PyTorch 2\.13 or later; here is 2\.4\.0"):
        check_release("2.4.0")
