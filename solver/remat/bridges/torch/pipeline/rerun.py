"""Layers whose saved tensors are dropped in the forward and recomputed for the backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import ref

from remat.bridges.torch.blocks import autocast_of, generators, random_states, set_random
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch


class _Place:
    """The place of a saved tensor in PyTorch's graph of a forward; empty until the layers are recomputed."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self) -> None:
        self.tensor: Any = None


class Rerun:
    """Layers that a micro-batch runs twice: first without keeping saved tensors, then for the backward.

    The second run fills the places in the graph of the first one, so each tensor lives as long as this graph. It
    repeats random numbers and autocast of the first run, and updates no running statistics.
    """

    def __init__(self, layers: Sequence[Callable[..., tuple[Any, ...]]]) -> None:
        self.layers = layers
        self._places: list[ref[_Place]] = []
        self._inputs: list[Any] | None = None
        self._needs: list[bool] = []
        self._filled = 0

    def first(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run the layers; keep their inputs only."""
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        self._devices = generators(tensors[0])
        self._random = random_states(self._devices)
        self._autocast = autocast_of({"cpu", *(tensor.device.type for tensor in tensors)})
        self._inputs = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
        self._needs = [isinstance(value, torch.Tensor) and value.requires_grad for value in inputs]
        versions = [tensor._version for tensor in tensors]
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            made = self._run(inputs)
        if versions != [tensor._version for tensor in tensors]:
            raise TorchError(
                "a recomputed layer writes into its input, which recomputation does not allow; make it not in-place"
            )
        return made

    def _run(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        for layer in self.layers:
            values = layer(*values)
        return values

    def again(self) -> None:
        """Run the layers a second time if they have run once, and drop their inputs."""
        inputs, self._inputs = self._inputs, None
        if inputs is None:
            return
        leaves = [
            value.detach().requires_grad_(needs) if isinstance(value, torch.Tensor) else value
            for value, needs in zip(inputs, self._needs, strict=True)
        ]
        del inputs
        torch.clear_autocast_cache()
        with ExitStack() as stack:
            stack.callback(set_random, self._devices, random_states(self._devices))
            set_random(self._devices, self._random)
            for layer in self.layers:
                stack.enter_context(_copied_statistics(layer))
            for kind, dtype, enabled, cached in self._autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=cached))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._fill, _never))
            self._run(tuple(leaves))
        torch.clear_autocast_cache()
        if self._filled != len(self._places):
            raise TorchError(
                f"recomputed layers saved {self._filled} tensors, and {len(self._places)} in their first run"
            )

    def _pack(self, _: Any) -> _Place:
        place = _Place()
        self._places.append(ref(place))
        return place

    def _fill(self, tensor: Any) -> None:
        if self._filled < len(self._places) and (place := self._places[self._filled]()) is not None:
            place.tensor = tensor.detach()
        self._filled += 1

    def _unpack(self, place: _Place) -> Any:
        if place.tensor is None:
            self.again()
        return place.tensor


def _never(_: Any) -> Any:
    raise AssertionError("the graph of a second run has no backward")


@contextmanager
def _copied_statistics(module: Any) -> Iterator[None]:
    """Let normalisations in training update copies of their running statistics, so that they save the same tensors."""
    parts = [part for part in module.modules() if part.training and getattr(part, "track_running_stats", False)]
    own = [dict(part._buffers) for part in parts]
    for part in parts:
        part._buffers.update({name: one if one is None else one.clone() for name, one in part._buffers.items()})
    try:
        yield
    finally:
        for part, buffers in zip(parts, own, strict=True):
            part._buffers.update(buffers)
