"""Copies of planned modules run their own parameters by the plan, or are refused in one line."""

import copy
import io
import pickle
import random
from itertools import pairwise

import pytest
import torch
from torch import nn

import remat
import remat.torch
from remat.bridges.torch.pipeline.layers import trace_layers
from remat.bridges.torch.pipeline.runtime import StageLayers
from tests.torch.ranks import Block
from tests.torch.studies import WORK, equal


class Net(nn.Module):
    """A chain of blocks whose result depends on the mode and an attribute of the root."""

    def __init__(self, widths):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(a, b), nn.GELU()) for a, b in pairwise(widths))
        self.scale = 1.0

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        x = nn.functional.dropout(x, 0.5, self.training)
        return self.scale * x.square().mean()


def drawn(seed):
    draw = random.Random(seed)
    widths = [draw.randint(4, 12) for _ in range(draw.randint(5, 8))]
    torch.manual_seed(seed)
    return Net(widths), torch.randn(draw.randint(40, 90), widths[0])


def applied(module, x):
    instance = remat.torch.chain(module, [x], blocks="blocks.*", repeats=1)
    kept = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
    plan = remat.solve(instance, algorithm="rotor", budget=int(0.6 * kept))
    plan = plan if plan.columns is not None else remat.solve(instance, algorithm="rotor", budget=int(0.8 * kept))
    assert len(plan.steps) > 2 * instance.length + 1
    return remat.torch.apply(module, plan, blocks="blocks.*")


def compiled(module, _):
    return remat.torch.compile(module, "80%", algorithm="dag-auto", options=WORK)


def with_backend(module, _):
    return torch.compile(module, backend=remat.torch.backend("80%", algorithm="dag-auto", options=WORK), dynamic=False)


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def pickled(module):
    return pickle.loads(pickle.dumps(module))


def step(module, x):
    """Loss and gradients of a step that begins without gradients."""
    module.zero_grad(set_to_none=True)
    torch.manual_seed(7)
    loss = module(x)
    loss.backward()
    gradients = {name.removeprefix("_orig_mod."): part.grad for name, part in module.named_parameters()}
    return {"loss": loss.detach(), **gradients}


def changed(module):
    """The module, with parameters of its own that differ from any before."""
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(torch.linspace(-1, 1, part.numel()).view_as(part))
    return module


@pytest.mark.parametrize("copied", [copy.deepcopy, saved, pickled], ids=["deepcopy", "save", "pickle"])
@pytest.mark.parametrize("plan", [applied, compiled, with_backend], ids=lambda plan: plan.__name__)
def test_a_copy_runs_its_own_parameters(plan, copied):
    plain, x = drawn(hash_of(plan, copied))
    planned = plan(copy.deepcopy(plain), x)
    before = step(planned, x)
    planned.zero_grad(set_to_none=True)
    other = copied(planned)
    assert type(other).__name__ == type(planned).__name__
    found, right = step(changed(other), x), step(changed(plain), x)
    assert equal(found, right)
    assert not torch.equal(found["loss"], before["loss"])
    assert all(part.grad is None for part in planned.parameters())
    assert equal(step(planned, x), before)


def hash_of(*functions):
    """A seed that differs between tests and not between processes."""
    return sum(map(ord, "".join(function.__name__ for function in functions)))


def test_a_copy_with_its_optimizer_at_the_host_needs_its_own():
    plain, x = drawn(1)
    given = {"host": "1GB", "link": "20GB/s", "host_bandwidth": "50GB/s", "optimizer_memory": "host", "options": WORK}
    planned = remat.torch.compile(copy.deepcopy(plain), "100%", optimizer="sgd", **given)
    first = remat.torch.host_optimizer(planned, torch.optim.SGD, lr=0.1)
    step(planned, x)
    first.step()
    start, other = copy.deepcopy(planned.state_dict()), changed(copy.deepcopy(planned))
    with pytest.raises(remat.torch.TorchError, match=r"call remat\.torch\.host_optimizer\(module, \.\.\.\) before"):
        step(other, x)
    for module, optimizer in (
        (other, remat.torch.host_optimizer(other, torch.optim.SGD, lr=0.1)),
        (changed(plain), torch.optim.SGD(plain.parameters(), lr=0.1)),
    ):
        step(module, x)
        optimizer.step()
    assert equal(other.state_dict(), plain.state_dict())
    assert equal(planned.state_dict(), start)


def test_copies_of_modules_inside_of_data_parallel(tmp_path):
    """The buckets of the copy are left to it as those of the original: the graph stays whole."""
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        plain, x = drawn(2)
        planned = compiled(nn.parallel.DistributedDataParallel(copy.deepcopy(plain)), x)
        before = step(planned, x)
        for copied in (copy.deepcopy, saved):
            other = copied(planned)
            found, right = step(changed(other.module), x), step(changed(plain), x)
            assert equal(found, right)
            step(other, x)
            assert other.plan.runs == planned.plan.runs
            assert other.__dict__["_remat_inside"].planned is other.module.__dict__["_remat"]
            assert other.module.__dict__["_remat"].outer is other
        assert equal(step(planned, x), before)
        alone = copy.deepcopy(planned.module)
        assert alone.__dict__["_remat"].outer is None
    finally:
        distributed.destroy_process_group()


@pytest.fixture
def shard():
    """Shards the blocks of a module with FSDP2, and then the module, in a group of one process."""
    torch._dynamo.reset()  # or PyTorch remembers where another case broke the graph
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))

    def sharded(module, *, blocks=True):
        for block in module.children() if blocks else ():
            for layer in block:
                fully_shard(layer, mesh=mesh)
        return fully_shard(module, mesh=mesh)

    yield sharded
    distributed.destroy_process_group()


def local(found):
    return {name: getattr(tensor, "_local_tensor", tensor) for name, tensor in found.items()}


class Root(nn.Module):
    """Blocks in a row whose forward PyTorch compiles, which it does not do with that of `nn.Sequential`."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block(16) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


@pytest.mark.filterwarnings("error:PyTorch compiled no training graph")
def test_a_copy_that_fsdp_shards_runs_its_own_parameters(shard):
    plain, x = Root(), torch.randn(64, 16)
    planned = compiled(copy.deepcopy(plain), x)
    before = step(planned, x)
    planned.zero_grad(set_to_none=True)
    other, right = shard(changed(copy.deepcopy(planned))), shard(changed(copy.deepcopy(plain)))
    for _ in range(3):
        found = step(other, x)
        assert equal(local(found), local(step(right, x)))
    assert not torch.equal(found["loss"], before["loss"])
    assert other.plan.overhead > 0
    assert other.plan.fingerprint != planned.plan.fingerprint
    assert all(part.grad is None for part in planned.parameters())
    torch._dynamo.reset()
    assert equal(step(planned, x), before)


@pytest.mark.filterwarnings("error:PyTorch compiled no training graph")
def test_what_fsdp_does_not_copy(shard):
    """PyTorch itself refuses deep copies and files of modules that FSDP2 has sharded: a plan adds no wrong ones."""
    plain, x = Root(), torch.randn(64, 16)
    planned = compiled(shard(copy.deepcopy(plain)), x)
    right = shard(plain)
    for _ in range(3):
        expected = local(step(right, x))
        assert equal(local(step(planned, x)), expected)
        for copied in (copy.deepcopy, saved, pickled):
            with pytest.raises((AssertionError, pickle.PicklingError)):
                copied(planned)
        with pytest.raises(remat.torch.TorchError, match="a shallow copy of a compiled module has no plan"):
            copy.copy(planned)(x)
    assert planned.plan.overhead > 0


def test_blocks_that_fsdp_shards_are_no_chain(shard):
    plain, x = drawn(13)
    planned = applied(copy.deepcopy(plain), x)
    expected = step(plain, x)
    assert equal(local(step(shard(copy.deepcopy(planned), blocks=False), x)), expected)
    message = r"\AFSDP2 shards blocks\.0, whose blocks [^\n]*use remat\.torch\.compile, [^\n]*\Z"
    with pytest.raises(remat.torch.TorchError, match=message):
        step(shard(planned), x)
    module = shard(copy.deepcopy(plain), blocks=False)
    for call in (
        lambda: remat.torch.chain(module, [x], blocks="blocks.*"),
        lambda: remat.torch.apply(module, {"steps": []}, blocks="blocks.*"),
    ):
        with pytest.raises(remat.torch.TorchError, match=r"\AFSDP2 shards the module, "):
            call()


def test_shallow_copies():
    plain, x = drawn(3)
    planned = applied(plain, x)
    for other in (copy.copy(planned), planned._replicate_for_data_parallel()):
        if other.blocks is planned.blocks:
            other.scale = 3.0
            assert torch.equal(step(other, x)["loss"], 3 * step(planned, x)["loss"])
        else:
            other._modules = copy.deepcopy(planned._modules)  # as DataParallel does on another device
            step(other, x)
            assert all(part.grad is None for part in planned.parameters())
    other = copy.copy(compiled(copy.deepcopy(plain), x))
    for call in (lambda: other(x), lambda: copy.copy(other), lambda: copy.deepcopy(other), lambda: pickled(other)):
        with pytest.raises(remat.torch.TorchError, match=r"\Aa shallow copy of a compiled module has no plan: .*\Z"):
            call()


def test_what_apply_returns_has_its_own_mode_and_attributes():
    plain, x = drawn(5)
    planned = applied(copy.deepcopy(plain), x)
    for change in (
        lambda module: module.eval(),
        lambda module: setattr(module, "scale", 3.0),
        lambda module: module.train(),
        lambda module: module.blocks.__setitem__(1, changed(copy.deepcopy(module.blocks[1]))),
    ):
        change(planned)
        change(plain)
        assert equal(step(planned, x), step(plain, x))


class Wrapped(nn.Module):
    """Makes copies in its own way."""

    def __init__(self, plain):
        super().__init__()
        self.blocks, self.dropout = plain.blocks, 0.0

    def forward(self, x):
        return Net.forward(self, x)

    scale = 1.0

    def __deepcopy__(self, memo):
        return Wrapped(copy.deepcopy(Net([2, 2]), memo))


class Reduced(Net):
    """Is saved in its own way."""

    def __reduce__(self):
        return Net, ([2, 2],)


def test_copies_that_lose_the_plan_are_refused_in_one_line():
    plain, x = drawn(6)
    with pytest.raises(remat.torch.TorchError, match=r"\AWrapped makes copies without the plan: copy [^\n]*\Z"):
        copy.deepcopy(applied(Wrapped(plain), x))
    plain.__class__ = Reduced
    planned = applied(plain, x)
    assert planned.blocks is plain.blocks
    for copied in (copy.copy, copy.deepcopy, pickled):
        with pytest.raises(remat.torch.TorchError, match=r"\AReduced has a __reduce__ that may lose the plan: .*\Z"):
            copied(planned)
    stages = remat.torch.Stages.__new__(remat.torch.Stages)
    for copied in (copy.copy, copy.deepcopy, pickled):
        with pytest.raises(remat.torch.TorchError, match=r"\Astages of a process group cannot be copied [^\n]*\Z"):
            copied(stages)


def test_copies_of_the_layers_of_a_stage():
    plain, x = drawn(9)
    plain.eval()
    layers = trace_layers(plain, [x], {}, "blocks.*")
    stage = StageLayers(dict(enumerate(layers.modules)), lambda _: ((0, 1),), layers.flatten)
    right = plain(x)
    for other in (copy.deepcopy(stage), stage):
        changed(other)(x)[0].backward()
        assert all((part.grad is None) == (other is not stage) for part in plain.parameters())
        assert torch.equal(right, plain(x)) == (other is not stage)
    assert torch.equal(plain(x), other(x)[0])


def test_compiled_modules_are_no_chains():
    plain, x = drawn(7)
    planned = nn.ModuleDict({"net": compiled(plain, x)})
    for call in (
        lambda: remat.torch.chain(planned, [x], blocks="net.blocks.*"),
        lambda: remat.torch.apply(planned, {}, blocks="net.blocks.*"),
    ):
        with pytest.raises(
            remat.torch.TorchError, match=r"\Anet was compiled by remat\.torch\.compile and has a plan; "
        ):
            call()


@pytest.mark.filterwarnings("ignore")
def test_a_training_step_that_does_not_call_the_planned_forward_is_refused():
    lightning = pytest.importorskip("lightning")

    class Module(Net, lightning.LightningModule):
        around = False

        def training_step(self, batch, _):
            return super().forward(batch) if self.around else {"loss": self(batch)}

    plain, x = drawn(8)
    module = Module([2, 2])
    module.blocks = plain.blocks
    planned = applied(module, x).eval()
    for other in (planned, copy.deepcopy(planned)):
        assert torch.equal(other.training_step(x, 0)["loss"], planned(x))
        other.around = True
        with pytest.raises(remat.torch.TorchError, match=r"\Atraining_step of Module does not call forward, [^\n]*\Z"):
            other.training_step(x, 0)
