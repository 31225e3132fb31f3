"""`remat.torch.pipeline`: bytes and times of a module's layers, measured with one micro-batch, as a pipeline."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from remat.bridges.torch.chain_capture import as_before, loss_of
from remat.bridges.torch.measure import LiveStorages, microseconds
from remat.bridges.torch.optimizers import Trained, read_optimizer
from remat.bridges.torch.pipeline.layers import Layers, trace_layers
from remat.bridges.torch.pipeline.opaque import filled
from remat.bridges.torch.shim import torch
from remat.building.pipeline import pipeline as build_pipeline
from remat.errors import OptionError
from remat.instance import PipelineInstance


def pipeline(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    blocks: str | Sequence[str],
    loss: Callable[[Any], Any] | None = None,
    halves: bool = False,
    optimizer: str | None = None,
    repeats: int = 3,
    **more: Any,
) -> PipelineInstance:
    """Measure the layers of a module with one micro-batch, and return them as an instance of kind `pipeline`.

    One layer is in memory at a time. Parameters, gradients, buffers and generators are left as they were.

    Parameters
    ----------
    module : torch.nn.Module
    args, kwargs : sequence, mapping
        Arguments of the module for one micro-batch.
    blocks : str or sequence of str
        Names of the submodules that are the layers, as for `remat.torch.stages`.
    loss : callable, optional
        Returns the loss, given the result of the module. Default: the loss is the result, or a part of it.
    halves : bool
        Divide backwards in a half for the input and one for the parameters, as zero-bubble schedules do.
    optimizer : str, optional
        As for `remat.torch.compile`; its states count as memory of each layer.
    repeats : int
        Runs that are timed; times are medians, in whole microseconds.
    **more
        `devices`, `micro_batches`, `memory`, `link` and other arguments of `remat.pipeline`.

    Returns
    -------
    PipelineInstance
        Sizes are bytes of live storages. A layer has the parameters, buffers and gradients of its block and of the
        operators around the block.

    Raises
    ------
    TorchError
        As `remat.torch.stages`, for the module.
    """
    if repeats < 1:
        raise OptionError(f"expected a number of runs, at least 1, not {repeats}", argument="repeats")
    layers = trace_layers(module, args, kwargs, blocks)
    values = layers.flatten(args, kwargs or {})
    states = read_optimizer(optimizer)
    found: list[_Costs] = []
    with as_before(module, (tuple(args), dict(kwargs or {}))):
        for parameter in module.parameters():
            parameter.grad = None
        for index, layer in enumerate(layers.modules):
            last = index + 1 == len(layers.modules)
            finish = (lambda made: _loss(layers, made, loss)) if last else None
            costs, values = _Measured(layer, values, finish, halves).costs(repeats)
            found.append(costs)
            for parameter in module.parameters():
                parameter.grad = None
    whole = ("weight_time", "weight_saved_size")
    columns: dict[str, Any] = {
        key: [getattr(costs, key) for costs in found]
        for key in _Costs.__dataclass_fields__
        if halves or key not in whole
    }
    return build_pipeline(
        **columns,
        optimizer_size=[states.state_bytes(list(_trained(layer))) for layer in layers.modules],
        names=list(layers.names),
        time_unit="us",
        name=type(module).__name__,
        source=f"PyTorch, blocks {blocks if isinstance(blocks, str) else ', '.join(blocks)}; times measured",
        **more,
    )


def _loss(layers: Layers, made: Any, loss: Callable[[Any], Any] | None) -> Any:
    returned = filled(layers.returned, made)
    return loss_of(returned) if loss is None else loss(returned)


def _trained(layer: Any) -> Iterator[Trained]:
    for parameter in layer.parameters():
        if parameter.requires_grad:
            yield Trained(_bytes_of([parameter]), tuple(parameter.shape))


def _bytes_of(tensors: Sequence[Any]) -> int:
    """Bytes of the distinct storages of tensors."""
    return sum({one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in tensors}.values())


@dataclass
class _Costs:
    """Columns of a layer."""

    forward_time: int = 0
    backward_time: int = 0
    weight_time: int = 0
    output_size: int = 0
    gradient_size: int = 0
    saved_size: int = 0
    weight_saved_size: int = 0
    forward_workspace: int = 0
    backward_workspace: int = 0
    parameter_size: int = 0
    parameter_gradient_size: int = 0


class _Measured:
    """One layer, whose forward and backward run separately from the others.

    Parameters
    ----------
    layer : torch.nn.Module
    values : sequence
        The tensors that arrive.
    finish : callable or None
        For the last layer: returns the loss from the layer's result.
    halves : bool
    """

    def __init__(self, layer: Any, values: Sequence[Any], finish: Callable[[Any], Any] | None, halves: bool) -> None:
        self.layer, self.values, self.finish = layer, values, finish
        needs = any(value.requires_grad for value in values if isinstance(value, torch.Tensor))
        self.split = halves and needs
        """Without a gradient for its inputs, PyTorch runs the whole backward as the second half."""
        self.all_second = halves and not needs
        self.torch: Any = import_module("torch.distributed.pipelining._backward")

    def costs(self, repeats: int) -> tuple[_Costs, list[Any]]:
        """Return the layer's costs, and the input of the next layer."""
        self._times()  # gradients are there from now on, as for all micro-batches but the first
        found = _Costs()
        made = self._bytes(found)
        laps = [self._times() for _ in range(repeats)]
        found.forward_time, found.backward_time, found.weight_time = map(microseconds, zip(*laps, strict=True))
        if self.all_second:
            found.backward_time, found.weight_time = 1, found.backward_time
        return found, made

    def _inputs(self) -> list[Any]:
        return [
            value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
            for value in self.values
        ]

    def _forward(self, inputs: list[Any]) -> tuple[tuple[Any, ...], list[Any]]:
        """Return the layer's results, and the tensors at which the backward begins."""
        with torch.enable_grad():
            made = tuple(self.layer(*inputs))
            return made, [one for one in made if one.requires_grad] if self.finish is None else [self.finish(made)]

    def _gradients(self, ends: list[Any]) -> list[Any] | None:
        return [torch.ones_like(end) for end in ends] if self.finish is None else None

    def _first(self, ends: list[Any], gradients: list[Any] | None, inputs: list[Any]) -> Any:
        """Run the first half of the backward, or all of it, and return the inputs of the second half."""
        if not self.split:
            torch.autograd.backward(ends, gradients)
            return None
        ends = [end.clone() if end._is_view() else end for end in ends]
        _, groups = self.torch.stage_backward_input(ends, gradients, inputs, self.layer.parameters())
        return groups

    def _second(self, groups: Any) -> None:
        if self.split:
            self.torch.stage_backward_weight(self.layer.parameters(), groups)

    def _times(self) -> list[float]:
        """Return the seconds of forward, backward or its first half, and second half."""
        inputs = self._inputs()
        marks = [_now()]
        made, ends = self._forward(inputs)
        marks.append(_now())
        gradients = self._gradients(ends)
        marks.append(_now())
        groups = self._first(ends, gradients, inputs)
        marks.append(_now())
        del made, ends, gradients, inputs
        self._second(groups)
        marks.append(_now())
        return [marks[1] - marks[0], marks[3] - marks[2], marks[4] - marks[3]]

    def _bytes(self, found: _Costs) -> list[Any]:
        """Run the layer with storages counted, and return the tensors for the next one."""
        held = [*self.layer.parameters(), *self.layer.buffers()]
        trained = [one for one in held if one.requires_grad]
        found.parameter_size, found.parameter_gradient_size = _bytes_of(held), _bytes_of(trained)
        live = LiveStorages([*held, *(one.grad for one in trained if one.grad is not None)])
        with live:
            inputs = self._inputs()
            arrived = live.level()
            made, ends = self._forward(inputs)
            top = live.peak
            level = live.level()
            found.forward_workspace = top - level
            own = {one.untyped_storage()._cdata for one in (*inputs, *held) if isinstance(one, torch.Tensor)}
            fresh = _bytes_of([one for one in made if one.untyped_storage()._cdata not in own])
            leaving = (
                [] if self.finish is not None else [one.detach().requires_grad_(one.requires_grad) for one in made]
            )
            found.saved_size = level - arrived - (fresh if self.finish is None else 0)
            found.output_size = _bytes_of(leaving)
            gradients = self._gradients(ends)
            found.gradient_size = _bytes_of(gradients or [])
            self._backward_bytes(found, live, [made, ends, gradients, inputs])
        return leaving

    def _backward_bytes(self, found: _Costs, live: LiveStorages, held: list[Any]) -> None:
        """Count the bytes of the backward; `held` are the layer's results, ends, their gradients, and inputs."""
        level = live.level()
        groups = self._first(*held[1:])
        top = live.peak
        passed = [one.grad for one in held[3] if isinstance(one, torch.Tensor) and one.grad is not None]
        passed_size = _bytes_of(passed)
        if self.all_second:
            found.weight_saved_size = level
        held.clear()
        del passed
        gc.collect()
        if self.split:
            found.weight_saved_size = live.level()
        kept = max(0, found.weight_saved_size - found.saved_size)
        found.backward_workspace = max(0, top - level - passed_size - kept)
        left = live.level()
        self._second(groups)
        found.backward_workspace = max(found.backward_workspace, live.peak - left)


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
