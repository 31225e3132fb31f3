"""Runs the joint graph along a schedule, task by task. Slow, exact, and the reference for the rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.joint import BOUNDARY, Task
from remat.bridges.torch.measure import LiveStorages
from remat.bridges.torch.recording import Node, Role, TorchError
from remat.bridges.torch.shim import fx, pytree, torch
from remat.bridges.torch.target_device import check_here


@dataclass(frozen=True)
class Execution:
    """Results of executing a schedule.

    Attributes
    ----------
    loss : tensor
    outputs : tuple
        Everything that the forward returned, the loss included.
    gradients : mapping of str to tensor
        By the name of the parameter; of the n-th leaf of the arguments, ``input n``.
    runs : mapping of str to int
        Number of runs of each task.
    seconds : mapping of str to float
        All runs of each task together.
    live_peak : int
        Bytes of storages alive, parameters, buffers and inputs not counted.
    allocator_peak : int or None
        Bytes that the allocator had handed out; None unless asked for.
    """

    loss: Any
    outputs: tuple[Any, ...]
    gradients: Mapping[str, Any]
    runs: Mapping[str, int]
    seconds: Mapping[str, float]
    live_peak: int
    allocator_peak: int | None = None


def given_tensors(captured: Captured, inputs: Any = None) -> list[Any]:
    """Return the tensors for the inputs of the joint graph, in order."""
    check_here(captured.target)
    if inputs is None and captured.tensors is not None:
        return captured.tensors
    if not captured.sources:
        raise TorchError("the origin of this graph's inputs is unknown outside PyTorch; capture the module itself")
    if inputs is None:
        inputs = captured.given
    leaves = pytree.tree_leaves(inputs)
    if len(leaves) != len(pytree.tree_leaves(captured.given)):
        raise TorchError("the arguments are not built like those that were captured")
    parameters = dict(captured.module.named_parameters())
    buffers = dict(captured.module.named_buffers())
    found: list[Any] = []
    for source in captured.sources:
        match source.kind:
            case "parameter":
                found.append(parameters[source.name])
            case "buffer":
                found.append(buffers[source.name])
            case "input":
                found.append(leaves[source.leaf])
            case _:
                found.append(source.tensor)
    return found


class Interpreter:
    """The state of an execution: the tensor of each resident node.

    Parameters
    ----------
    captured : Captured
    given : list of tensors
        See `given_tensors`.
    """

    def __init__(self, captured: Captured, given: list[Any]) -> None:
        self.captured = captured
        self.given = given
        self.there: dict[str, Any] = {}
        self.outputs: tuple[Any, ...] = ()
        self.runs: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}

    def run(self, events: Iterable[Any]) -> Execution:
        """Run and drop as the events say."""
        held = self.held_by_value()
        live = LiveStorages(self.given)
        with ExitStack() as stack:
            for context in (torch.no_grad(), torch._C._DisableAutocast(), live):
                stack.enter_context(context)
            self._take_inputs()
            for event in events:
                self.follow(event, held)
            gradients = {
                self._name(index): self._tensor(name, {})
                for index, name in enumerate(self.captured.recording.gradients)
                if name is not None
            }
        return Execution(self._loss(), self.outputs, gradients, self.runs, self.seconds, live.peak)

    def held_by_value(self) -> dict[str, list[str]]:
        """Return the nodes whose tensors hold each value."""
        joint, recording = self.captured.joint, self.captured.recording
        held: dict[str, list[str]] = {}
        for name in (*joint.maker, *(node.name for node in recording.nodes if node.role is Role.TANGENT)):
            for value in joint.owned[name]:
                held.setdefault(value, []).append(name)
        return held

    def follow(self, event: Any, held: Mapping[str, list[str]]) -> None:
        """Run and drop as one event says; `held` has the nodes of each value."""
        if event.task is not None:
            self.step(self.captured.joint.tasks[event.task])
        for value in event.drop:
            for name in held.get(value, ()):
                self.there.pop(name, None)

    def _take_inputs(self) -> None:
        recording = self.captured.recording
        names = [node.name for node in recording.nodes if node.role is Role.INPUT]
        for name, tensor in zip(names, self.given, strict=True):
            self.there[name] = tensor.detach() if isinstance(tensor, torch.Tensor) else tensor
        for node in recording.nodes:
            if node.role is Role.CONSTANT:
                self.there[node.name] = getattr(self.captured.graph, self.captured.by_name[node.name].target)

    def _name(self, index: int) -> str:
        source = self.captured.sources[index]
        return source.name or f"input {source.leaf}"

    def step(self, task: Task) -> None:
        """Run a task."""
        begin = time.perf_counter()
        if task.name == BOUNDARY:
            self._turn()
        elif task.from_mask:
            read, mask, made = self.captured.joint.mask_parts(task.node)
            self.there[made] = from_mask(
                self._tensor(read, {}), self._tensor(mask, {}), mask_scale(self.captured, read, task.node)
            )
        else:
            self._call(task.node)
        self.runs[task.name] += 1
        self.seconds[task.name] = self.seconds.get(task.name, 0.0) + time.perf_counter() - begin

    def _call(self, name: str) -> None:
        joint = self.captured.joint
        self.there[name] = returned = self.made(name, {})
        for item in joint.items.get(name, ()):
            self.there[item] = returned[joint.nodes[item].item]
        for size in joint.sizes_of(name):
            self.there[size] = self.made(size, {})
        if joint.nodes[name].several:
            del self.there[name]

    def made(self, name: str, views: dict[str, Any]) -> Any:
        """Return the result of a node's operator on the existing tensors."""
        return self.operation(name, views)()

    def operation(self, name: str, views: dict[str, Any]) -> Callable[[], Any]:
        """Return a node's operator with its arguments, on the resident tensors."""
        node = self.captured.by_name[name]
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), lambda read: self._tensor(read.name, views))
        return partial(node.target, *args, **kwargs)

    def _tensor(self, name: str, views: dict[str, Any]) -> Any:
        """Return a node's tensor; views are created on demand."""
        if not self.captured.joint.is_view(name):
            return self.there[name]
        if name not in views:
            views[name] = self.made(name, views)
        return views[name]

    def _turn(self) -> None:
        """Pass the outputs to the caller and receive the tangents: 1 for the loss, 0 for all others."""
        views: dict[str, Any] = {}
        self.outputs = tuple(
            None if name is None else self._tensor(name, views) for name in self.captured.recording.outputs
        )
        for node, one in self.tangents():
            like, held = self.captured.by_name[node.name].meta["val"], node.tensors[0]
            make = torch.ones if one else torch.zeros
            shape = like.shape if held is None else held.shape
            self.there[node.name] = make(shape, dtype=like.dtype, device=like.device)

    def tangents(self) -> Iterator[tuple[Node, bool]]:
        """Yield the tangents, and whether each is 1: that of the loss, the first that is a scalar."""
        found = False
        for node in self.captured.recording.nodes:
            if node.role is Role.TANGENT:
                held = node.tensors[0]
                is_loss = not found and held is not None and held.shape == ()
                found = found or is_loss
                yield node, is_loss
        if not found:
            raise TorchError("the loss is not a scalar: return the mean or the sum of it")

    def _loss(self) -> Any:
        for tensor in self.outputs:
            if tensor is not None and tensor.dim() == 0 and tensor.is_floating_point():
                return tensor
        raise TorchError("the module returns no scalar of a floating-point type: a loss is needed")


def mask_scale(captured: Captured, read: str, node: str) -> float:
    """Return the factor of what dropout keeps: the CPU's kernel rounds it to the tensor's type, devices' do not."""
    like = captured.by_name[read].meta["val"]
    scale = 1 / (1 - (captured.joint.nodes[node].dropout or 0))
    return float(torch.tensor(scale, dtype=like.dtype)) if like.device.type == "cpu" else scale


def from_mask(tensor: Any, mask: Any, scale: float) -> Any:
    """Repeat dropout with the mask that was drawn."""
    return tensor.mul(mask).mul_(scale)
