"""Shared fixtures of networks: captures, plans at shares of the budget range, and PyTorch baselines."""

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

import remat
import remat.torch
from remat.bridges.torch.graphs import build
from remat.bridges.torch.joint import BOUNDARY
from remat.bridges.torch.recording import Role
from tests.torch import models

SHARES = ("keep-all", 0.5, 0.25, 0)
WORK = {"iterations": 8}
"""Work limit of a solve, so that answers do not depend on the clock."""


@dataclass
class Study:
    module: Any
    args: tuple
    kwargs: dict
    captured: Any
    start: dict
    plans: dict

    def reset(self, seed=3):
        self.module.load_state_dict(self.start)
        torch.manual_seed(seed)

    def eager(self, module=None, seed=3):
        """Loss, gradients and buffers after one step of plain PyTorch."""
        module = copy.deepcopy(self.module) if module is None else module
        module.load_state_dict(self.start)
        torch.manual_seed(seed)
        loss = models.loss_of(module(*self.args, **self.kwargs))
        loss.backward()
        gradients = {name: tensor.grad for name, tensor in module.named_parameters() if tensor.grad is not None}
        return loss.detach(), gradients, dict(module.named_buffers())


def solve(instance, budget):
    return remat.solve(instance, algorithm="dag-auto", budget=budget, options=WORK)


def plans_of(instance, shares=SHARES):
    """Solve at the minimum budget found by bisection, plus shares of the range up to keep-all."""
    top = remat.solve(instance, algorithm="keep-all")
    highest, low = top.peak_memory["memory"], top.memory_bounds["memory"].size
    plans = {"keep-all": top}
    least = highest
    while least - low > 0.1 * highest:
        found = solve(instance, (least + low) // 2)
        if found.columns is None:
            low = (least + low) // 2
        else:
            least, plans[0] = found.peak_memory["memory"], found
    for share in shares:
        if share not in plans:
            plans[share] = solve(instance, int(least + share * (highest - least)))
    return {share: plans[share] for share in shares}


@cache
def study(factory):
    module, args, kwargs = models.make(factory)
    captured = remat.torch.capture(module, *args, **kwargs)
    start = copy.deepcopy(module.state_dict())
    return Study(module, args, kwargs, captured, start, plans_of(captured.instance()))


def reruns(result):
    names = [step.task for step in result.steps if hasattr(step, "task")]
    return len(names) - len(set(names))


def step_bytes(plan):
    """Peak bytes of a step, without permanent bytes."""
    return plan.split["activations"] + plan.split.get("gradients", 0)


def equal(one, other):
    """Whether two dictionaries of tensors are equal to the bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def emits_what_was_planned(captured, runs, emitted):
    """Assert that the two graphs hold the planned runs in their order, views of what these made, and nothing else."""
    joint = captured.joint
    turn = runs.index(BOUNDARY)
    for part, planned in ((emitted.forward, runs[:turn]), (emitted.backward, runs[turn + 1 :])):
        assert part.runs == tuple(planned)
        others = [line for line in part.lines if not line.run]
        items = [line for line in others if line.node in joint.maker]
        views = [line for line in others if line.node not in joint.maker]
        assert all(joint.nodes[line.node].role is Role.ITEM for line in items)
        assert all(joint.is_view(line.node) or joint.nodes[line.node].role is Role.CONSTANT for line in views)
        made = [(line.node, line.reads) for line in others]
        assert len(made) == len(set(made)), "each view of a tensor is created once"
    for part, module in zip((emitted.forward, emitted.backward), build(captured, emitted), strict=True):
        nodes = [node for node in module.graph.nodes if node.op in ("call_function", "get_attr")]
        assert len(nodes) == len(part.lines)
