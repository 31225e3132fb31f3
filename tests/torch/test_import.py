"""`remat import torch MODULE:FACTORY`."""

import json

import pytest

import remat
import remat.torch
from remat.cli.main import main

SOURCE = """
import torch
class Net(torch.nn.Linear):
    def forward(self, x, *, scale=1.0):
        return (super().forward(x) * scale).square().mean()
def make(): return Net(4, 3), (torch.ones(5, 4),), {"scale": 2.0}
def plain(): return Net(4, 3), [torch.ones(5, 4)]
def fails(): raise KeyError("size")
def wrong(): return 3
"""


def test_a_factory_becomes_an_instance(tmp_path, capsys):
    path, output = tmp_path / "own_train.py", tmp_path / "step.json"
    path.write_text(SOURCE)
    assert main(["import", "torch", f"{path}:make", "--optimizer", "adam", "-o", str(output)]) == 0
    document = json.loads(output.read_text())
    assert document["static_memory"] == 4 * (15 + 20) + 2 * 4 * 15
    assert remat.solve(document, algorithm="keep-all").peak_memory["memory"] > document["static_memory"]
    assert main(["import", "torch", f"{path}:plain", "-o", str(output)]) == 0
    assert main(["import", "torch", f"{path}:plain", "--costs", "measure", "-o", str(output)]) == 0
    document = json.loads(output.read_text())
    assert document["source"] == "PyTorch; times from measured on cpu"
    assert document["static_memory"] == 4 * (15 + 20)
    capsys.readouterr()
    for name, message in (("fails", "raised KeyError"), ("wrong", "returns a int"), ("none", "has no function")):
        assert main(["import", "torch", f"{path}:{name}"]) == 2
        assert message in capsys.readouterr().err


def test_names_of_factories():
    for wrong in ("train", ":make", "train:3"):
        with pytest.raises(remat.torch.TorchError, match="expected MODULE:FACTORY"):
            remat.torch.capture_factory(wrong)
    with pytest.raises(remat.torch.TorchError, match="cannot be imported: ModuleNotFoundError"):
        remat.torch.capture_factory("no_such_module_at_all:make")
