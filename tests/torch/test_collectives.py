"""Collectives in executed graphs return when their tensors have no other holder."""

import threading
import time

import torch
from torch import fx

from remat.bridges.torch import collectives
from remat.bridges.torch.collectives import run_collective
from remat.bridges.torch.graphs import compile_boxed


class Late:
    """A collective whose thread holds argument and result after it has returned, as gloo's threads do."""

    def __init__(self, seconds):
        self.seconds, self.held = seconds, []

    def __call__(self, tensor):
        made = tensor.clone()
        self.held = [tensor.view(-1), made.view(-1)]  # a view holds its base
        threading.Timer(self.seconds, self.held.clear).start()
        return made


def test_a_collective_returns_when_its_tensors_are_released():
    late, given = Late(0.05), torch.ones(8)
    before = given._use_count()
    made = run_collective(late, given)
    assert late.held == []
    assert (given._use_count(), made._use_count()) == (before, 1)


def test_a_tensor_that_somebody_else_holds_ends_the_wait(monkeypatch):
    monkeypatch.setattr(collectives, "PATIENCE", 0.05)
    late, given = Late(1.0), torch.ones(8)
    begin = time.monotonic()
    made = run_collective(late, given)
    assert late.held
    assert time.monotonic() - begin >= 0.05
    assert torch.equal(made, given)


def test_graphs_run_collectives_so_and_nothing_else():
    functional = torch.ops._c10d_functional
    graph = fx.Graph()
    given = graph.placeholder("given")
    reduced = graph.call_function(functional.all_reduce.default, (given, "sum", "0"))
    waited = graph.call_function(functional.wait_tensor.default, (reduced,))
    graph.output((graph.call_function(torch.ops.aten.relu.default, (waited,)),))
    module = fx.GraphModule({}, graph)
    compile_boxed(module)
    targets = [node.target for node in graph.nodes if node.op == "call_function"]
    assert targets[0] is run_collective
    assert targets[1:] == [functional.wait_tensor.default, torch.ops.aten.relu.default]
    assert "run_collective(torch.ops._c10d_functional.all_reduce.default, given, 'sum', '0')" in module.code
