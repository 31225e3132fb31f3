"""Trainers know a backend by its name: two epochs, a smaller last batch, evaluation between."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import remat.torch
from tests.torch.studies import WORK, equal


@pytest.fixture
def configured(monkeypatch):
    """Return the list of all plans that backend "remat" makes."""
    from remat.bridges.torch import backend

    made = []
    make = backend.make_plan
    import transformers  # noqa: F401  (it adds methods to loggers, which `configure` then knows)

    monkeypatch.setattr(backend, "_CONFIGURED", {})
    monkeypatch.setattr(backend, "make_plan", lambda *given: made.append(make(*given)) or made[-1])
    remat.torch.configure(budget="90%", algorithm="dag-auto", options=WORK)
    return made


class Rows(Dataset):
    """This number of rows of one network's inputs."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(4)
        self.ids = torch.randint(97, (count, 16), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def small_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=97, n_positions=16, n_embd=16, n_layer=2, n_head=2, use_cache=False,
            bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_transformers(configured, tmp_path):
    """Its own argument for a backend's name ends in a closed list of accelerate's, so the model is compiled first."""
    from transformers import Trainer, TrainingArguments

    def trained(compiled):
        torch._dynamo.reset()
        model = small_gpt2()
        if compiled:
            model.compile(backend="remat", dynamic=False)
        given = TrainingArguments(
            output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=8, eval_strategy="epoch",
            save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, seed=1, logging_steps=1,
        )  # fmt: skip
        trainer = Trainer(model=model, args=given, train_dataset=Rows(21), eval_dataset=Rows(5))
        trainer.train()
        seen = [(log.get("loss"), log.get("eval_loss")) for log in trainer.state.log_history[:-1]]
        return seen, model.state_dict()

    right, found = trained(compiled=False), trained(compiled=True)
    assert len(right[0]) == 2 * (3 + 1)
    assert found[0] == right[0]
    assert equal(found[1], right[1])
    assert len({plan.fingerprint for plan in configured}) == 2
    assert any(len(plan.runs) > len(set(plan.runs)) for plan in configured)


@pytest.mark.filterwarnings("ignore")
def test_lightning_trains_with_a_plan(configured, tmp_path):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 32), nn.Tanh())
            self.seen = []

        def forward(self, x):
            return self.net(x).square().mean()

        def training_step(self, batch, _):
            return self.forward(batch)

        def on_train_batch_end(self, outputs, *_):
            self.seen.append(outputs["loss"].item())

        def validation_step(self, batch, _):
            return self.forward(batch)

        def on_validation_batch_end(self, outputs, *_):
            self.seen.append(outputs.item())

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    def trained(compiled):
        torch._dynamo.reset()
        torch.manual_seed(0)
        module, data = Module(), torch.randn(149, 8)
        given = torch.compile(module, backend="remat", dynamic=False) if compiled else module
        torch.manual_seed(2)
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(given, DataLoader(data, batch_size=64), DataLoader(data[:20], batch_size=20))
        return module.seen, module.state_dict()

    right, found = trained(compiled=False), trained(compiled=True)
    assert found[0] == right[0]
    assert equal(found[1], right[1])
    assert len({plan.fingerprint for plan in configured}) == 2


def logging_module(*, between=True):
    import lightning

    class Module(lightning.LightningModule):
        """Logs its loss and a part of it, and trains by what its methods do."""

        def __init__(self):
            super().__init__()
            layers = [part for _ in range(4) for part in (nn.Linear(8, 8), nn.Tanh())]
            self.net, self.head = nn.Sequential(*layers, nn.Dropout(0.3)), nn.Linear(8, 1)

        def loss(self, x):
            out = self.head(self.net(x))
            return out.square().mean(), out.abs().mean()

        def training_step(self, batch, index):
            first, second = self.loss(batch)
            if between:
                self.log("first", first, prog_bar=True)
            loss = first + 0.5 * second
            if not between:
                self.log("first", first, prog_bar=True)
            self.log_dict({"loss": loss, "second": second, "rows": float(len(batch))}, on_step=True, on_epoch=True)
            return {"loss": loss}

        def validation_step(self, batch, _):
            self.log("validation", sum(self.loss(batch)))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    return Module()


WAYS = {
    "module": lambda module, given: (remat.torch.compile(module, **given), lambda: [module.plan]),
    "copy": lambda module, given: _of_copy(copy.deepcopy(remat.torch.compile(module, **given))),
    "backend": lambda module, given: _with_backend(module, remat.torch.backend(**given)),
    "name": lambda module, given: (torch.compile(module, backend="remat", dynamic=False), lambda: None),
}


def _of_copy(module):
    return module, lambda: [module.plan]


def _with_backend(module, planner):
    return torch.compile(module, backend=planner, dynamic=False), lambda: planner.plans


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
def test_modules_of_lightning_that_log(way, configured, tmp_path):
    lightning = pytest.importorskip("lightning")

    def trained(compiled):
        torch._dynamo.reset()
        torch.manual_seed(0)
        module, data, plans = logging_module(between=way in ("module", "copy")), torch.randn(192, 8), lambda: None
        if compiled:
            given = {"budget": "90%", "algorithm": "dag-auto", "options": WORK}
            module, plans = WAYS[way](module, given)
        torch.manual_seed(2)
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(module, DataLoader(data, batch_size=64), DataLoader(data[:64], batch_size=64))
        return trainer.callback_metrics, getattr(module, "_orig_mod", module).state_dict(), plans()

    right, found = trained(compiled=False), trained(compiled=True)
    assert {"first", "loss_step", "loss_epoch", "second_epoch", "rows_epoch", "validation"} <= right[0].keys()
    assert equal(found[0], right[0])
    assert equal(found[1], right[1])
    made = configured if found[2] is None else found[2]
    assert made
    assert None not in made


@pytest.mark.filterwarnings("ignore")
def test_a_step_with_logs_between_its_operators_is_planned_as_several_graphs(tmp_path):
    lightning = pytest.importorskip("lightning")
    backend = remat.torch.backend("1MB")
    compiled = torch.compile(logging_module(), backend=backend, dynamic=False)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(compiled, DataLoader(torch.randn(16, 8), batch_size=8))
    assert len(backend.plans) > 1


@pytest.mark.filterwarnings("ignore")
def test_a_module_of_lightning_that_runs_backward_itself_is_refused():
    pytest.importorskip("lightning")
    module = logging_module()
    module.automatic_optimization = False
    with pytest.raises(remat.torch.TorchError, match=r"uses manual optimization.*remat\.torch\.compile\(loss_module\)"):
        remat.torch.compile(module, budget="1MB")


class Cast(nn.Module):
    """Dropout under bf16 autocast, where PyTorch's own compiler differs from eager."""

    def __init__(self):
        super().__init__()
        layers = [part for _ in range(3) for part in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.3))]
        self.net = nn.Sequential(*layers, nn.Linear(32, 5))

    def forward(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = self.net(x)
        return nn.functional.cross_entropy(out.float(), y)


def test_autocast_with_dropout_is_as_aot_eager_does_it():
    torch.manual_seed(0)
    module, args = Cast(), (torch.randn(256, 32), torch.randint(5, (256,)))

    def step(call, net):
        torch.manual_seed(7)
        loss = call(*args)
        loss.backward()
        return loss.detach(), {name: tensor.grad for name, tensor in net.named_parameters()}

    other = copy.deepcopy(module)
    right = step(torch.compile(other, backend="aot_eager", dynamic=False), other)
    for budget in ("100%", "75%"):
        torch._dynamo.reset()
        mine = copy.deepcopy(module)
        planned = remat.torch.compile(mine, budget, algorithm="dag-auto", options=WORK)
        loss, found = step(planned, mine)
        assert torch.equal(loss, right[0])
        assert equal(found, right[1])
    assert len(planned.plan.runs) > len(set(planned.plan.runs))
