"""Measured costs with a cache, and the report that compares predicted with measured time and peak."""

import json

import pytest
import torch

import remat.torch
from remat.bridges.torch import operator_timing
from remat.bridges.torch.measure import LiveStorages
from remat.cli.main import main
from tests.torch import models
from tests.torch.models import make

SOURCE = """
import torch

def make():
    class Step(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x).square().mean()
    return Step(8, 8), (torch.randn(4, 8),)
"""


def test_each_operator_is_measured_once_for_a_device(tmp_path, monkeypatch):
    module, args, kwargs = make(models.mlp)
    captured = remat.torch.capture(module, *args, **kwargs)
    first = remat.torch.profile(captured, repeats=1, cache=tmp_path)
    (path,) = tmp_path.iterdir()
    written = path.read_text()
    assert json.loads(written)["operators"] == first["operators"]

    def refuse(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(operator_timing, "_measured", refuse)
    again = remat.torch.capture(module, *args, **kwargs)
    assert remat.torch.profile(again, cache=tmp_path) == first
    torch.set_num_threads(2)
    with pytest.raises(AssertionError, match="measured again"):  # other threads take other times
        remat.torch.profile(again, cache=tmp_path)
    torch.set_num_threads(1)
    monkeypatch.undo()
    smaller = remat.torch.capture(module, args[0][:100], args[1][:100])
    remat.torch.profile(smaller, repeats=1, cache=tmp_path)
    assert json.loads(path.read_text())["operators"].items() > first["operators"].items(), "other shapes are added"


def test_dropout_from_its_mask_is_measured(tmp_path):
    module, args, kwargs = make(models.mlp)
    captured = remat.torch.capture(module, *args, **kwargs)
    masks = [task for task in captured.joint.tasks.values() if task.from_mask]
    costs = remat.torch.profile(captured, repeats=1)
    instance = captured.instance(costs | {"otherwise": "roofline:A100-fp32"})
    operators = costs["operators"]
    keys = [key for key in operators if key.endswith("@mask")]
    assert masks
    assert len(keys) == 1, "all dropouts here are alike"
    times = {task["id"]: task["time"] for task in captured.document(costs)["tasks"]}
    assert {times[task.name] for task in masks} == {operators[keys[0]][0]}
    assert "measured" in instance.source


@pytest.mark.parametrize("factory", [models.mlp, models.conv], ids=lambda factory: factory.__name__)
def test_a_report_compares_times_and_peaks_and_its_costs_plan_again(factory):
    module, args, kwargs = make(factory)
    planned = remat.torch.compile(module, "90%", algorithm="dag-auto")
    torch.manual_seed(0)
    planned(*args, **kwargs).backward()
    expected = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    torch.manual_seed(0)
    with remat.torch.observe(planned) as report:
        planned(*args, **kwargs).backward()
    for one, parameter in zip(expected, module.parameters(), strict=True):
        assert torch.equal(one, parameter.grad)
    assert report.passes == 1
    plan = planned.plan
    moving = plan.peak - sum(size for name, size in plan.split.items() if name not in ("activations", "gradients"))
    assert report.total.predicted_peak == moving
    module.zero_grad()
    with LiveStorages([*module.parameters(), *module.buffers(), *args]) as live:
        planned(*args, **kwargs).backward()
    assert abs(report.total.peak - live.peak) <= 64
    assert abs(report.total.peak - moving) <= 64
    assert sum(row.predicted_time for row in report.rows) == plan.schedule["makespan"]
    assert all(row.time > 0 for row in report.rows)
    assert any(row.module.startswith("net.0") for row in report.rows)
    assert "report.costs" in str(report)
    assert str(report).count("\n") >= 3
    again = remat.torch.compile(make(factory)[0], "90%", algorithm="dag-auto", costs=report.costs)
    again(*args, **kwargs).backward()
    assert again.plan.schedule["makespan"] != plan.schedule["makespan"]
    known = set(report.costs["operators"])
    assert known <= set(
        remat.torch.measure(remat.torch.capture(make(factory)[0], *args, **kwargs), repeats=1)["operators"]
    )


def test_what_cannot_be_observed_is_refused_in_one_line():
    module, _, _ = make(models.mlp)
    with pytest.raises(remat.torch.TorchError, match="expected a module"), remat.torch.observe(module):
        pass
    planned = remat.torch.compile(module)
    with pytest.raises(remat.torch.TorchError, match="no planned graph ran"), remat.torch.observe(planned):
        pass
    through = remat.torch.compile(module, inductor=True)
    with pytest.raises(remat.torch.TorchError, match="Inductor"), remat.torch.observe(through):
        pass


def test_the_command_measures_operators(tmp_path, capsys):
    path = tmp_path / "measured_step.py"
    path.write_text(SOURCE)
    assert main(["fit", "torch", f"{path}:make", "--budget", "1MB", "--measure"]) == 0
    assert "costs='measure'" in capsys.readouterr().out
    assert main(["fit", "torch", f"{path}:make", "--budget", "1MB", "--measure", "--costs", "measure"]) == 2
    assert "give one" in capsys.readouterr().err
