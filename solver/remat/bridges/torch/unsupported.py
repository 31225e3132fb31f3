"""One-line errors for programs that cannot be captured, with the place in the user's code."""

from __future__ import annotations

import re
import warnings
from importlib import import_module
from typing import Any

from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.messages import first_line, reason

PACKAGES = "site-packages/"
PYTORCH = "site-packages/torch/_"
"""Folders of installed packages and of PyTorch."""

_LONGEST = 200
"""Characters of a message of PyTorch."""


def check_module(module: Any) -> None:
    """Refuse anything but a module, and parameters or hooks that the joint graph would not show."""
    if not isinstance(module, torch.nn.Module):
        raise TorchError(f"expected a torch.nn.Module that returns the loss, not {type(module).__name__}")
    plain = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if type(tensor) not in plain:
            raise TorchError(f"{name} is a {type(tensor).__name__}; plans are for plain tensors")
    check_backward_hooks(module, itself=True)
    for name, tensor in module.named_parameters():
        if tensor._backward_hooks:
            raise TorchError(f"parameter {name} has a hook, which a plan would not call; remove it")


def check_backward_hooks(module: Any, *, itself: bool = False) -> None:
    """Refuse backward hooks of submodules, which the joint graph does not show; on request also of the module."""
    for part in module.modules():
        if (part._backward_hooks or part._backward_pre_hooks) and (itself or part is not module):
            name = next(known for known, other in module.named_modules() if other is part)
            raise TorchError(f"{name or 'the module'} has a backward hook, which a plan would not call; remove it")


def warn_of_checkpoints(graph: Any) -> None:
    """Warn once that checkpointing in the model is ignored."""
    if any("recompute" in node.meta for node in graph.nodes):
        warnings.warn(
            "the model has its own activation checkpointing, which remat ignores: switch it off",
            stacklevel=2,
        )


def is_break(error: BaseException) -> bool:
    """Whether a module cannot be traced as one graph, but perhaps as several."""
    found: Any = import_module("torch._dynamo.exc")
    return isinstance(error, (found.Unsupported, found.UserError))


def explain(error: BaseException) -> TorchError:
    """Return the one-line message for an error of tracing."""
    chain: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in chain:
            chain.append(one)
            waiting += [getattr(one, "inner_exception", None), one.__cause__, one.__context__]
    for one in chain:
        if isinstance(one, TorchError):
            return one
    text = str(error)
    where = _place(text)
    for one in chain:
        missing = re.search(r"no (?:fake impl|meta kernel|meta function)[^<]*<?(?:CustomOpDef\()?([\w:.]+)", str(one))
        if missing or type(one).__name__ == "UnsupportedOperatorException":
            return TorchError(f"{missing[1] if missing else first_line(str(one), _LONGEST)} has no meta kernel{where}")
    for one in chain:
        if "Unsupported" in type(one).__name__:
            return TorchError(f"the module cannot be traced as one graph{where}: {first_line(str(one), _LONGEST)}")
    inner = getattr(error, "inner_exception", None) or error
    return TorchError(f"the module cannot be captured{where}: {reason(inner, _LONGEST)}")


def _place(text: str) -> str:
    """Return `` (file.py:12)`` from the part of a message that quotes the code, and the line of a package below it."""
    _, _, quoted = text.partition("from user code")
    found = re.findall(r'File "([^"]+)", line (\d+)', quoted or text)
    if not found:
        return ""
    path, line = next((entry for entry in reversed(found) if PACKAGES not in entry[0]), found[-1])
    inner, number = next((entry for entry in reversed(found) if PYTORCH not in entry[0]), (path, line))
    below = f", in {inner.rpartition(PACKAGES)[2]}:{number}" if (path, line) != (inner, number) else ""
    return f" ({path}:{line}{below})"
