"""Modules whose parameters have no data (device meta): captured with stand-ins on the device of the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import pytree, torch


def has_no_data(tensor: Any) -> bool:
    """Whether a tensor is on the device meta."""
    return isinstance(tensor, torch.Tensor) and tensor.device.type == "meta"


def check_data(tensors: list[Any]) -> None:
    """Refuse to run on tensors that have no data."""
    if any(map(has_no_data, tensors)):
        raise TorchError("parameters or inputs are on the device meta, which cannot run them; move the module first")


@contextmanager
def stand_ins(module: Any, given: Any, target: str = "") -> Iterator[Any]:
    """Yield the arguments for capturing a module.

    On the device meta itself, PyTorch would choose operators that no real device uses, and save other results for the
    backward. Within the context, parameters, buffers and arguments are therefore fake tensors, on the device of those
    arguments that have one, otherwise on the CPU. If everything has data, the context changes nothing.

    Parameters
    ----------
    module : torch.nn.Module
    given : (args, kwargs)
    target : str
        The type of the device of the fake tensors, even if everything has data.
    """
    tables = [table for part in module.modules() for table in (part._parameters, part._buffers)]
    tensors = [tensor for table in tables for tensor in table.values() if tensor is not None]
    leaves = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    elsewhere = target and any(tensor.device.type != target for tensor in (*tensors, *leaves))
    if not elsewhere and not any(map(has_no_data, (*tensors, *leaves))):
        yield given
        return
    devices = [leaf.device for leaf in leaves if not has_no_data(leaf)]
    device = devices[0] if devices else torch.device("cpu")
    if target:
        device = torch.device(target, None if target == "cpu" else 0)
    mode = import_module("torch._subclasses.fake_tensor").FakeTensorMode()
    known: dict[int, Any] = {}

    def fake(tensor: Any) -> Any:
        if id(tensor) not in known:
            known[id(tensor)] = _fake(mode, tensor, device, everywhere=bool(elsewhere))
        return known[id(tensor)]

    before = [dict(table) for table in tables]
    try:
        for table in tables:
            table.update({name: fake(tensor) for name, tensor in table.items() if tensor is not None})
        with mode:
            yield pytree.tree_map_only(torch.Tensor, fake, given)
    finally:
        for table, was in zip(tables, before, strict=True):
            table.update(was)


def _fake(mode: Any, tensor: Any, device: Any, *, everywhere: bool) -> Any:
    if not has_no_data(tensor) and not everywhere:
        return mode.from_tensor(tensor)
    with mode:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made
