"""A compiled module is the module itself: nothing that PyTorch or a trainer does with it happens without its plan."""

import copy
import io
import sys

import pytest
import torch
from torch import nn

import remat.torch
from tests.torch.models import Net
from tests.torch.studies import WORK, equal


class Noisy(nn.Module):
    """Its result depends on its mode and on an attribute."""

    def __init__(self):
        super().__init__()
        self.one, self.drop, self.two = nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 1)
        self.scale = 1.0

    def forward(self, x):
        return (self.two(self.drop(torch.tanh(self.one(x)))) * self.scale).square().mean()


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.square().mean()


def gradients(module, x):
    module.zero_grad()
    torch.manual_seed(7)
    module(x).backward()
    return {name: tensor.grad.clone() for name, tensor in module.named_parameters()}


def test_the_original_is_what_is_compiled():
    """Its mode, its attributes and its parts are those of the compiled module, in both directions."""
    original, x = Noisy(), torch.randn(6, 8)
    plain = copy.deepcopy(original)
    planned = remat.torch.compile(original, budget="100%")
    for change in (
        lambda module: None,
        lambda module: module.eval(),
        lambda module: setattr(module, "scale", 3.0),
        lambda module: module.train(),
        lambda module: setattr(module, "drop", nn.Dropout(0.25)),
    ):
        change(original)
        change(plain)
        assert equal(gradients(planned, x), gradients(plain, x))
        assert original.plan is planned.plan is not None
    assert type(planned) is Noisy
    assert list(planned.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_of_a_later_call_are_called(kind):
    planned, x, seen = remat.torch.compile(Net()), torch.randn(6, 8), []
    planned(x).backward()
    handle = getattr(planned.one, kind)(lambda *_: seen.append(1))
    for _ in range(2):
        planned(x).backward()
    assert len(seen) == 2
    handle.remove()
    planned(x).backward()
    assert len(seen) == 2


@pytest.mark.parametrize("kind", ["register_full_backward_hook", "register_full_backward_pre_hook"])
@pytest.mark.parametrize("later", [False, True], ids=["before", "later"])
def test_backward_hooks_of_parts_are_refused_at_each_call(kind, later):
    planned, x, seen = remat.torch.compile(Net()), torch.randn(6, 8), []
    if later:
        planned(x).backward()
    handle = getattr(planned.one, kind)(lambda *_: seen.append(1))
    with pytest.raises(remat.torch.TorchError, match="one has a backward hook, which a plan would not call"):
        planned(x)
    handle.remove()
    planned(x).backward()
    planned.register_full_backward_hook(lambda *_: seen.append(2))  # runs outside the graphs
    planned(x).backward()
    assert seen == [2]


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, saved], ids=["deepcopy", "save"])
@pytest.mark.parametrize("called", [False, True], ids=["uncalled", "called"])
def test_copies_keep_the_plan(copied, called, monkeypatch):
    from remat.bridges.torch import backend

    x, made = torch.randn(64, 8), []
    make = backend.make_plan
    monkeypatch.setattr(backend, "make_plan", lambda *given: made.append(make(*given)) or made[-1])
    planned = remat.torch.compile(Deep(), budget="75%", algorithm="dag-auto", options=WORK)
    if called:
        planned(x).backward()
    other = copied(planned)
    assert other.plan == planned.plan
    assert (other.plan is not None) == called
    other.__dict__["plan"] = None  # what its own call plans counts
    found, right = gradients(other, x), gradients(planned, x)
    assert equal(found, right)
    assert other.plan.runs == planned.plan.runs
    assert len(other.plan.runs) > len(set(other.plan.runs))
    assert other.layers is not planned.layers
    assert len(made) == (1 if called else 2)  # of a known plan nothing is solved
    within = copied(nn.ModuleDict({"inner": planned}))["inner"]
    within(x).backward()
    assert within.plan.runs == planned.plan.runs


def test_a_compiled_module_is_captured_like_its_original():
    module, x = Deep(), torch.randn(4, 8)
    fingerprint = remat.torch.capture(module, x).fingerprint
    planned = remat.torch.compile(module)
    assert remat.torch.capture(planned, x).fingerprint == fingerprint
    planned(x).backward()
    assert planned.plan.fingerprint == remat.torch.capture(planned, x).fingerprint == fingerprint


def test_a_copy_of_the_attributes_alone_compiles_nothing():
    planned = remat.torch.compile(Net())
    assert copy.deepcopy(planned.__dict__["_remat"]) is planned.__dict__["_remat"]


class Branch(nn.Module):
    def __init__(self, decide=None):
        super().__init__()
        self.one, self.decide = nn.Linear(8, 1), decide

    def forward(self, x):
        y = self.one(x).mean()
        if self.decide is None:
            if y > 0:
                return 2 * y
        elif self.decide(y > 0):
            return 2 * y
        return y


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose code depends on data."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "some_decisions.py").write_text(
        "def decide(flag):\n    if flag:\n        return True\n    return False\n"
    )
    monkeypatch.syspath_prepend(folder)
    yield __import__("some_decisions")
    del sys.modules["some_decisions"]


def test_compile_explains_as_capture_does(package):
    for decide, said in (
        (None, r"\Athe module cannot be traced as one graph \([^() ]*test_compiled_module\.py:\d+\): .{5,80}\Z"),
        (package.decide, r"one graph \([^() ]*test_compiled_module\.py:\d+, in some_decisions\.py:2\): .{5,80}\Z"),
    ):
        torch._dynamo.reset()
        with pytest.raises(remat.torch.TorchError, match=said) as refused:
            remat.torch.capture(Branch(decide), torch.randn(4, 8))
        torch._dynamo.reset()
        with pytest.warns(UserWarning, match="several graphs within one budget") as warned:
            remat.torch.compile(Branch(decide))(torch.randn(4, 8))
        assert str(warned[0].message) == f"{refused.value}; it is planned as several graphs within one budget"


def test_a_module_is_expected():
    with pytest.raises(
        remat.torch.TorchError, match=r"expected a torch\.nn\.Module that returns the loss, not function"
    ):
        remat.torch.compile(lambda x: x)
