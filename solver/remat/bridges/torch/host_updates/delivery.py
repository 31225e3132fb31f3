"""Gradients that leave the device within a planned backward, as calls in its graph."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.recording import TorchError

_COUNT = itertools.count()
_KNOWN: weakref.WeakValueDictionary[int, Updates] = weakref.WeakValueDictionary()


@dataclass(eq=False)
class Updates:
    """The optimizer at the host of a compiled module.

    Attributes
    ----------
    optimizer : weak reference or callable
        Returns the optimizer, or None.
    number : int
        Stands for this object in graphs.
    """

    optimizer: Any = lambda: None
    number: int = field(default_factory=lambda: next(_COUNT))

    def __post_init__(self) -> None:
        """Make it known to graphs."""
        _KNOWN[self.number] = self


@dataclass(frozen=True)
class Leaving:
    """Gradients that leave within the backward.

    Attributes
    ----------
    value : str
        The value that the gradient is.
    parameters : tuple of (int, str)
        Places and names of the parameters with this gradient.
    """

    value: str
    parameters: tuple[tuple[int, str], ...]


def leaving(captured: Captured) -> tuple[Leaving, ...]:
    """Return the gradients of parameters that no task reads and no other object holds."""
    joint = captured.joint
    read = {value for task in joint.tasks.values() for value in task.reads}
    outputs = {value for _, values in joint.outputs() for value in values}
    found: dict[str, list[tuple[int, str]]] = {}
    others: set[str] = set()
    for place, _, values in joint.gradients():
        source = captured.sources[place] if place < len(captured.sources) else None
        if source is None or source.kind != "parameter" or not source.name or len(values) != 1:
            others.update(values)
        else:
            found.setdefault(values[0], []).append((place, source.name))
    held = read | outputs | others
    return tuple(Leaving(value, tuple(parameters)) for value, parameters in found.items() if value not in held)


# --------------------------------------------------------------------------------------------- in graphs


def leave(gradient: Any, number: int, names: Sequence[str]) -> None:
    """Copy a gradient to the host for parameters of these names."""
    optimizer = _optimizer(number)
    for name in names:
        optimizer.receive(optimizer.parameter(name), gradient)


def wait(_: Sequence[Any], number: int, names: Sequence[str]) -> None:
    """Let the compute stream wait for the copies of these gradients; the other argument stays alive until then."""
    optimizer = _optimizer(number)
    optimizer.wait_for([optimizer.parameter(name) for name in names])


def _optimizer(number: int) -> Any:
    updates = _KNOWN.get(number)
    optimizer = None if updates is None else updates.optimizer()
    if optimizer is None:
        raise TorchError(
            "the plan has the optimizer at the host: call remat.torch.host_optimizer(module, ...) before backward()"
        )
    return optimizer
