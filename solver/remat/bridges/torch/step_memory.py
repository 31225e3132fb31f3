"""Contents of memory at the two peaks of a training step: in forward and backward, and in ``optimizer.step()``."""

from __future__ import annotations

from collections.abc import Mapping, Set

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.costs import trained_of
from remat.bridges.torch.optimizers import Optimizer
from remat.bridges.torch.plans import Event
from remat.solving.result import Result
from remat.units import format_size

STATIC = ("parameters", "buffers", "inputs", "constants", "optimizer")
LABELS = {"optimizer": "optimizer states", "accumulated": "gradients of earlier steps"}
"""Readable names for keys of a split."""


def label(name: str) -> str:
    """Return the printed name of a key of a split."""
    return LABELS.get(name, name)


def listed(split: Mapping[str, int], most: int | None = None) -> str:
    """Return the parts of a split in a line, largest first, at most `most` of them."""
    parts = sorted(((size, name) for name, size in split.items() if size), key=lambda part: -part[0])
    return ", ".join(f"{format_size(size)} {label(name)}" for size, name in parts[:most])


def gradient_values(captured: Captured) -> frozenset[str]:
    """Return the values that are gradients at the end of the backward."""
    joint = captured.joint
    names = (name for name in captured.recording.gradients if name is not None)
    return frozenset(value for name in names for value in joint.owned[name])


def gradient_bytes(captured: Captured) -> int:
    """Bytes of the gradients that a step makes."""
    return sum(captured.joint.values[value] for value in gradient_values(captured))


def gradients_at_peak(captured: Captured, result: Result, events: list[Event]) -> int:
    """Bytes of the gradients that are resident at the peak of a schedule; 0 if the peak is before the first step."""
    last = None if result.report is None else result.report.peaks["memory"].step
    if last is None:
        return 0
    wanted, graph = gradient_values(captured), result.graph
    made = {
        name: wanted.intersection(graph.values[int(value)] for value in graph.writes[index])
        for index, name in enumerate(graph.tasks)
    }
    there = set[str]()
    for event in events[: last + 1]:
        if event.task is not None:
            there |= made[event.task]
        if event is not events[last]:
            there.difference_update(event.drop)
    return sum(captured.joint.values[value] for value in there)


def optimizer_step(captured: Captured, optimizer: Optimizer, split: Mapping[str, int], device: str) -> dict[str, int]:
    """Return the bytes of each kind while the optimizer updates the parameters.

    Parameters
    ----------
    captured : Captured
    optimizer : Optimizer
    split : mapping of str to int
        Static bytes, by kind.
    device : str
        The type of the device.

    Returns
    -------
    dict
        Static bytes as in `split`, all gradients, the results of the forward (the caller holds them), and the
        temporaries of the step.
    """
    temporaries = optimizer.step_bytes(trained_of(captured.recording, captured.parameter_order), device)
    return after_backward(captured, split) | {"temporaries": temporaries}


def after_backward(captured: Captured, split: Mapping[str, int], left: Set[str] = frozenset()) -> dict[str, int]:
    """Return the bytes of each kind on the device after the backward.

    Parameters
    ----------
    captured : Captured
    split : mapping of str to int
        Static bytes, by kind.
    left : set of str
        Gradients that the backward has sent to a host.
    """
    joint = captured.joint
    gradients = gradient_values(captured)
    found = {name: split[name] for name in STATIC}
    found["gradients"] = sum(joint.values[value] for value in gradients - left)
    found["outputs"] = sum(joint.values[value] for value in joint.returned - gradients)
    return found
