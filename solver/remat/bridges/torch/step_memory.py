"""Contents of memory at the two peaks of a training step: in forward and backward, and in ``optimizer.step()``."""

from __future__ import annotations

from collections.abc import Mapping, Set

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.costs import trained_of
from remat.bridges.torch.optimizers import Optimizer
from remat.bridges.torch.plans import Event
from remat.solving.result import Result
from remat.units import format_budget, format_size

STATIC = ("parameters", "buffers", "inputs", "constants", "optimizer")
MOVING = ("gradients", "activations")
"""Kinds of a split whose bytes change during the step."""
LABELS = {"optimizer": "optimizer states", "accumulated": "gradients of earlier steps"}
"""Readable names for keys of a split."""


def label(name: str) -> str:
    """Return the printed name of a key of a split."""
    return LABELS.get(name, name)


def listed(split: Mapping[str, int], most: int | None = None) -> str:
    """Return the parts of a split in a line, largest first, at most `most` of them."""
    parts = sorted(((size, name) for name, size in split.items() if size), key=lambda part: -part[0])
    return ", ".join(f"{format_size(size)} {label(name)}" for size, name in parts[:most])


def peak_line(peak: int, split: Mapping[str, int]) -> str:
    """Return the contents of memory at the peak of forward and backward in a line.

    Gradients and activations come and go: the line states that their bytes are those at the peak.
    """

    def sizes(*, moving: bool) -> str:
        named = ((name, size) for name, size in split.items() if size and (name in MOVING) == moving)
        return ", ".join(f"{label(name)} {format_size(size)}" for name, size in named)

    at_peak = sizes(moving=True)
    parts = [part for part in (sizes(moving=False), at_peak and f"at the peak {at_peak}") if part]
    return f"peak {format_budget(peak)}: {'; '.join(parts)}"


def dominate(gradients: int, peak: int, static: int = 0) -> bool:
    """Whether gradients of parameters take more than half of what is not static at a peak."""
    return 2 * gradients > peak - static


def gradient_note(gradients: int, peak: int, static: int) -> str:
    """Return what reduces the gradients of parameters; empty unless they dominate a peak.

    Parameters
    ----------
    gradients : int
        Bytes of all gradients of a step.
    peak, static : int
        Bytes in forward and backward, and those of them that no schedule changes.
    """
    if not dominate(gradients, peak, static):
        return ""
    return (
        f"gradients of parameters take {format_size(gradients)}, {gradients / peak:.0%} of the peak; recomputation and "
        "smaller batches do not reduce them; frozen parameters have none, FSDP2 shards them, and "
        "optimizer_memory='host' moves them to a host"
    )


def gradient_values(captured: Captured) -> frozenset[str]:
    """Return the values that are gradients at the end of the backward."""
    joint = captured.joint
    names = (name for name in captured.recording.gradients if name is not None)
    return frozenset(value for name in names for value in joint.owned[name])


def gradient_bytes(captured: Captured) -> int:
    """Bytes of the gradients that a step makes."""
    return sum(captured.joint.values[value] for value in gradient_values(captured))


def fixed_parts(captured: Captured, split: Mapping[str, int]) -> str:
    """Return the parts of a needed budget that no schedule reduces, without those below a hundredth of them.

    Parameters
    ----------
    captured : Captured
    split : mapping of str to int
        Static bytes and the reserve, by kind.
    """
    reserve, states = split["reserve"], split["optimizer"] + split["accumulated"]
    shares = {
        "weights": split["parameters"],
        "new gradients": gradient_bytes(captured),
        "optimizer states": split["optimizer"],
        "gradients of earlier steps": split["accumulated"],
        "inputs and the like": sum(split.values()) - reserve - split["parameters"] - states,
        "reserve": reserve,
    }
    whole = sum(shares.values())
    parts = ", ".join(f"{format_size(size)} {name}" for name, size in shares.items() if 100 * size > whole)
    return f"recomputation does not reduce {parts}"


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
