"""`MODULE:FACTORY`: calls a user's function that returns a module and the arguments of its call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remat.bridges.factories import make
from remat.bridges.torch.capture import Captured, capture_for
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch


def call_factory(named: str, **given: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Call a factory, and return module, arguments and keywords.

    Parameters
    ----------
    named : str
        ``package.module:function``, or ``path/to/file.py:function``; modules are also found in the current folder.
    **given
        Arguments of the factory.

    Raises
    ------
    TorchError
        If it does not exist, raises (its exception is the cause), or returns anything else.
    """
    made = make(named, TorchError, **given)
    match made:
        case (torch.nn.Module() as module, tuple() | list() as args):
            return module, tuple(args), {}
        case (torch.nn.Module() as module, tuple() | list() as args, Mapping() as kwargs):
            return module, tuple(args), dict(kwargs)
    raise TorchError(f"{named} returns a {type(made).__name__}, not (module, args) or (module, args, kwargs)")


def capture_factory(named: str, /, target: str = "", **given: Any) -> Captured:
    """Capture the training step of a factory's module, which returns a scalar loss.

    Parameters
    ----------
    named : str
    target : {"", "cpu", "cuda"}
        The type of the step's device, which may be absent; empty for that of the inputs.
    **given
        Arguments of the factory.
    """
    module, args, kwargs = call_factory(named, **given)
    captured = capture_for(target, module, args, kwargs)
    if not captured.has_loss:
        said = f"{named} makes a module that returns {_returned(captured)}, not one floating-point number"
        raise TorchError(f"the loss is not a scalar: {said}; wrap it in a module that returns the loss")
    return captured


def _returned(captured: Captured) -> str:
    """Describe the forward's results: shapes and types of its first tensors."""
    nodes = (captured.joint.nodes[name] for name in captured.recording.outputs if name is not None)
    held = [tensor for node in nodes for tensor in node.tensors if tensor is not None]
    shown = ", ".join(f"{tensor.dtype} {list(tensor.shape)}" for tensor in held[:3])
    more = f" and {len(held) - 3} more" if len(held) > 3 else ""
    return f"{shown}{more}" if held else "no tensor"
