"""Plans for an absent device: the operators of CUDA, its reserve and defaults, and the same runs elsewhere."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat
import remat.torch
from remat.bridges.torch.caching_allocator import is_better, reserved_bytes
from remat.bridges.torch.capture import capture_for
from remat.bridges.torch.measure import LiveStorages
from remat.bridges.torch.planning import RESERVE_ON_DEVICE, make_plan
from remat.bridges.torch.target_device import target_of
from remat.cli.main import main
from remat.units import format_size
from tests.torch import models
from tests.torch.studies import WORK, equal

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="with CUDA, its operators are traced")


class Attend(nn.Module):
    """Attention after a normalisation, on `meta`: no kernel runs."""

    def __init__(self, dtype, width=16, keys=4, **given):
        super().__init__()
        self.width, self.keys, self.given = width, keys, given
        with torch.device("meta"):
            self.norm = nn.LayerNorm(32, dtype=dtype)
            self.project = nn.Linear(32, (4 + 2 * keys) * width, dtype=dtype)

    def forward(self, x, mask=None):
        rows = self.project(self.norm(x)).unflatten(-1, (-1, self.width)).transpose(1, 2)
        parts = rows.split((4, self.keys, self.keys), 1)
        return functional.scaled_dot_product_attention(*parts, attn_mask=mask, **self.given).square().mean()


def captured(module, dtype, *, masked=False, target="cuda"):
    mask = torch.ones(24, 24, dtype=torch.bool, device="meta") if masked else None
    return capture_for(target, module, (torch.randn(2, 24, 32, dtype=dtype, device="meta"), mask), {})


def operators(step):
    return [row["operator"] for row in step.table()]


FLASH, EFFICIENT = (f"aten._scaled_dot_product_{kind}_attention.default" for kind in ("flash", "efficient"))
SHORT, FULL = torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("dtype", "masked", "given", "kernel"),
    [
        (SHORT, False, {}, FLASH),
        (torch.float16, False, {"is_causal": True}, FLASH),
        (SHORT, False, {"width": 12, "dropout_p": 0.1}, FLASH),
        (SHORT, False, {"keys": 2, "enable_gqa": True}, FLASH),
        (SHORT, True, {}, EFFICIENT),
        (SHORT, False, {"width": 264}, EFFICIENT),
        (FULL, False, {}, EFFICIENT),
        (FULL, True, {"dropout_p": 0.1}, EFFICIENT),
        (FULL, False, {"keys": 2, "enable_gqa": True}, "aten.bmm.default"),
        (torch.float64, False, {}, "aten.bmm.default"),
    ],
)
def test_the_kernel_that_cuda_would_run(dtype, masked, given, kernel):
    step = captured(Attend(dtype, **given), dtype, masked=masked)
    found = operators(step)
    assert kernel in found
    assert not any("for_cpu" in name for name in found)
    attention = [row for row in step.table() if row["operator"] in (FLASH, EFFICIENT)]
    assert all(row["flops"] > 0 for row in attention)
    assert all(row["recomputable"] == ("dropout_p" not in given) for row in attention)


@pytest.mark.parametrize("dtype", [SHORT, FULL], ids=str)
def test_statistics_of_layer_normalisation_have_full_precision(dtype):
    def written(target):
        rows = captured(Attend(dtype), dtype, target=target).table()
        return next(row["writes"] for row in rows if row["operator"] == "aten.native_layer_norm.default")

    assert written("cuda") == 2 * 24 * (32 * dtype.itemsize + 2 * 4)
    assert written("cpu") == 2 * 24 * (32 + 2) * dtype.itemsize


@pytest.mark.filterwarnings("ignore")
def test_the_module_casts_as_it_does_on_cuda():
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(32, 32)

        def forward(self, x):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return self.one(x).float().square().mean()

    held = capture_for("cuda", Cast(), (torch.randn(4, 32),), {}).recording.nodes
    made = [tensor.dtype for node in held if node.operator == "aten.addmm.default" for tensor in node.tensors]
    assert made == ["bfloat16"]


def test_defaults_are_those_of_the_device():
    step = captured(Attend(SHORT), SHORT)
    plan = make_plan(step, remat.torch.Choices(optimizer="adamw"))
    assert plan.split["reserve"] == RESERVE_ON_DEVICE
    assert plan.optimizer == "adamw-foreach"
    for said in ("planned for the absent device cuda", f"1 {FLASH}", "1 GiB is in reserve"):
        assert said in plan.summary
    here = make_plan(captured(Attend(SHORT), SHORT, target=""), remat.torch.Choices(optimizer="adamw"))
    assert (here.split["reserve"], here.optimizer) == (0, "adamw-loop")
    assert "planned for" not in here.summary
    assert (here.reserved, "reserves" in here.summary, "reserved" in here.to_document()) == (0, False, False)
    for run in (remat.torch.measure, lambda step: remat.torch.execute(step, remat.solve(step.instance()))):
        with pytest.raises(
            remat.torch.TorchError, match="cuda is absent, so operators cannot run on it or be measured"
        ):
            run(step)


def test_reserved_bytes_are_predicted(tmp_path):
    """The allocator of a GPU keeps segments of whole MiB, which a plan states and a plan file keeps."""
    step = captured(Attend(SHORT), SHORT)
    plan = make_plan(step, remat.torch.Choices())
    assert plan.reserved % (2 << 20) == 0
    assert plan.peak < plan.reserved
    assert f"reserves {format_size(plan.reserved)}, as predicted" in plan.summary
    plan.save(tmp_path / "plan.json")
    assert remat.torch.load_plan(step, tmp_path / "plan.json").reserved == plan.reserved


def test_of_equal_plans_the_one_with_fewer_reserved_bytes_is_better():
    """A smaller block fits into the segment of a larger one that was freed, and a larger one needs another segment."""
    mib = 1 << 20

    def kept(order):
        tasks = [
            {"id": f"{name}{k}", "time": 1, "reads": [f"{name}{j}" for j in range(k)], "writes": [f"{name}{k}"]}
            for name in order
            for k in range(2)
        ]
        for task in tasks[1::2]:
            task["required"] = True
        values = [{"id": f"{name}0", "size": size * mib} for name, size in (("a", 11), ("b", 14))]
        values += [{"id": f"{name}1", "size": 0} for name in "ab"]
        document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values}
        return remat.solve(document, algorithm="keep-all")

    wide, narrow = kept("ab"), kept("ba")
    assert [reserved_bytes(one, "cuda") // mib for one in (wide, narrow)] == [26, 14]
    assert wide.makespan == narrow.makespan
    assert is_better(narrow, wide, "cuda")
    assert not is_better(wide, narrow, "cuda")
    assert not is_better(narrow, wide, "cpu")


def test_what_names_a_target():
    assert target_of(None, "roofline:H100-bf16") == target_of(None, "roofline:A100-80GB-fp32") == "cuda"
    assert target_of("cpu", "roofline:H100-bf16") == "cpu"
    assert target_of(None, "roofline:TPU-v5p-bf16") == target_of(None, "roofline:own.json#H100-bf16") == ""
    assert target_of(None, None) == target_of(None, "costs.json") == target_of(None, {"schema": ""}) == ""
    with pytest.raises(remat.OptionError, match="target: there is no 'tpu'; known are cpu, cuda"):
        target_of("tpu", None)


@pytest.mark.parametrize("factory", [models.mlp, models.conv, models.attention, models.named, models.unet])
def test_the_plan_runs_on_another_device(factory, tmp_path):
    """The CPU represents the device: only its attention kernels differ from those of the plan."""
    torch.manual_seed(0)
    module, args, kwargs = factory()
    start, path = copy.deepcopy(module.state_dict()), tmp_path / "plan.json"
    target = capture_for("cuda", module, args, kwargs)
    choices = {"algorithm": "dag-auto", "options": WORK, "reserve": 0}
    least = make_plan(target, remat.torch.Choices(**choices)).peak
    plan = None
    for share in (0.7, 0.8, 0.9, 1):
        try:
            plan = make_plan(target, remat.torch.Choices(budget=int(share * least), **choices), search=False)
            break
        except remat.torch.TooSmallError:
            continue
    plan.save(path)
    planned = remat.torch.compile(copy.deepcopy(module), plan=path)

    def step(net):
        torch.manual_seed(3)
        loss = models.loss_of(net(*args, **kwargs))
        loss.backward()
        return {name: tensor.grad for name, tensor in net.named_parameters()}

    assert equal(step(planned), step(module))
    assert planned.plan.source == str(path)
    assert len(planned.plan.runs) == len(plan.runs)
    planned.zero_grad()
    planned.load_state_dict(start)
    given = [*planned.parameters(), *planned.buffers(), *args, *kwargs.values()]
    with LiveStorages([tensor for tensor in given if torch.is_tensor(tensor)]) as live:
        models.loss_of(planned(*args, **kwargs)).backward()
    split = planned.plan.split
    assert live.peak <= split["gradients"] + split["activations"] + 64


def test_a_plan_for_another_program_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    make_plan(captured(Attend(SHORT), SHORT), remat.torch.Choices()).save(path)
    step = captured(Attend(SHORT, width=24), SHORT, target="")
    with pytest.raises(
        remat.torch.TorchError, match=r"another program; the first task that differs is aten\.\S+ \(\w+"
    ):
        remat.torch.load_plan(step, path)
    document = json.loads(path.read_text())
    document["portable"].append(["mul", "0"])
    path.write_text(json.dumps(document))
    with pytest.raises(remat.torch.TorchError, match=r"another program; it has \d+ tasks, and here are \d+"):
        remat.torch.load_plan(captured(Attend(SHORT), SHORT, target=""), path)


SOURCE = """
import torch
class Net(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        with torch.device("meta"):
            self.layers = torch.nn.ModuleDict({name + str(n): torch.nn.Linear(64, 64) for n in range(6)})
    def forward(self, x):
        for layer in self.layers.values():
            x = torch.tanh(layer(x))
        return x.square().mean()
def make(batch=4096): return Net("layer"), (torch.zeros(batch, 64, device="meta"),)
def lora():
    net, given = make()
    holder = torch.nn.Module()
    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base_model_of_the_adapters = Net("a_layer_whose_name_in_the_configuration_file_takes_" + 40 * "x")
        def forward(self, x): return self.base_model_of_the_adapters(x)
    return Outer(), given
"""


def test_on_the_command_line(tmp_path, capsys):
    path, plan = tmp_path / "own_target.py", str(tmp_path / "plan.json")
    path.write_text(SOURCE)
    asked = ["fit", "torch", f"{path}:make", "--optimizer", "adamw", "--budget"]
    for options, said in (
        (["1.1GB", "--costs", "roofline:H100-bf16"], "adamw-foreach"),
        (["1.1GB", "--target", "cuda", "-o", plan], "adamw-foreach"),
        (["20MB", "--target", "cpu", "--costs", "roofline:H100-bf16"], "adamw-loop"),
    ):
        assert main([*asked, *options]) == 0
        shown = capsys.readouterr().out
        assert said in shown
        assert ("absent device" in shown) == (said == "adamw-foreach")
    assert main([*asked, "1GB", "--target", "cuda"]) == 3
    assert "is all reserve" in capsys.readouterr().err
    assert main(["fit", "torch", f"{path}:lora", "--budget", "8.4MB"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= 100
    assert any(line.startswith("Recomputed") and "in base_model_of_the_adapters" in line for line in shown)
    step = str(tmp_path / "step.json")
    assert main(["import", "torch", f"{path}:make", "--target", "cuda", "--optimizer", "adamw", "-o", step]) == 0
    assert main(["export", plan, "--of", step, "--as", "table"]) == 0
