"""Blocks whose parameters, gradients and states are at a host, as stages of a chain with parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from remat.bridges.torch.blocks import Block
from remat.bridges.torch.host_updates.planning import CPU, read_bandwidth, update_time
from remat.bridges.torch.optimizers import Trained, read_optimizer
from remat.bridges.torch.plan_options import check_rate, check_staleness, read_size
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.bridges.torch.transfers import DEVICE, HOST, links_both_ways, measured_rate
from remat.errors import OptionError

HOST_SPEED = Fraction(1, 16)
"""Speed of the host's processor: an update on the device takes this share of its time, and a block 16 times longer."""


@dataclass(frozen=True)
class BlockHost:
    """The host that has the parameters of blocks between their uses, and updates them.

    Attributes
    ----------
    host : int or str
        Bytes of the host.
    optimizer : str
        As for `remat.torch.read_optimizer`.
    link, host_bandwidth : int, float, str or None
        See `Choices`.
    staleness : {0, 1}
        1: a step uses the parameters before the latest update, which the host keeps apart.
    """

    host: int | str
    optimizer: str
    link: float | str | None = None
    host_bandwidth: float | str | None = None
    staleness: int = 0

    def __post_init__(self) -> None:
        """Refuse values that cannot be read."""
        if not read_size(self.host, "host"):
            raise OptionError("the host has no memory; leave host out to plan without it", argument="host")
        for name in ("link", "host_bandwidth"):
            if getattr(self, name) is not None:
                check_rate(getattr(self, name), name)
        read_optimizer(self.optimizer)
        check_staleness(self.staleness)

    def delayed(self) -> dict[str, Any]:
        """Return the keys of an instance whose updates count later; none if they do not."""
        if not self.staleness:
            return {}
        return {"schema": "remat.instance/3", "staleness": self.staleness, "master_copy": True}

    def machine(self, device: Any) -> dict[str, Any]:
        """Return the document of the device, and of a host that updates."""
        rate = measured_rate(device) if self.link is None else self.link
        return {
            "memories": [{"name": DEVICE}, {"name": HOST, "capacity": read_size(self.host, "host")}],
            "processors": [
                {"name": "processor", "memory": DEVICE},
                {"name": CPU, "memory": HOST, "speed": float(HOST_SPEED)},
            ],
            "links": links_both_ways(rate),
        }

    def stages(self, blocks: Sequence[Block], gradients: Sequence[int]) -> list[dict[str, Any]]:
        """Return the keys of each stage that its parameters need."""
        bandwidth = read_bandwidth(self.host_bandwidth)
        model = read_optimizer(self.optimizer)
        found: list[dict[str, Any]] = []
        for block, gradient in zip(blocks, gradients, strict=True):
            trained = trained_in(block)
            size = sum(tensor.nbytes for tensor in trained)
            states = model.state_bytes([Trained(tensor.nbytes, tuple(tensor.shape)) for tensor in trained])
            states += size if self.staleness else 0  # updates write a copy of the parameters
            time = update_time(size, gradient, states, bandwidth)
            found.append(
                {
                    "parameter_size": size,
                    "parameter_gradient_size": gradient,
                    "optimizer_size": states if size else 0,
                    "update_time": time * float(HOST_SPEED) if size else 0,
                }
            )
        return found


def trained_in(block: Block) -> list[Any]:
    """Return the parameters of a block that need a gradient."""
    return [tensor for tensor in block.module.parameters() if tensor.requires_grad]


def check_alone(module: Any, blocks: Sequence[Block]) -> None:
    """Refuse parameters that a block shares with anything else, storages of several tensors, and empty ones."""
    inside: dict[int, str] = {}
    parts = {id(part) for block in blocks for part in block.module.modules()}
    for block in blocks:
        for name, tensor in block.module.named_parameters():
            if inside.setdefault(id(tensor), block.name) != block.name:
                raise TorchError(f"blocks {inside[id(tensor)]} and {block.name} share a parameter, which cannot leave")
            size = tensor.untyped_storage().nbytes()
            if size > tensor.nbytes:
                raise TorchError(f"{block.name}.{name} is a part of a larger storage, which cannot leave")
    for part in module.modules():
        if id(part) not in parts:
            for name, tensor in part.named_parameters(recurse=False):
                if id(tensor) in inside:
                    raise TorchError(f"block {inside[id(tensor)]} shares {name} with the rest, so that it cannot leave")


def device_of(blocks: Sequence[Block]) -> Any:
    """Return the device of the blocks."""
    return next((tensor.device for block in blocks for tensor in block.module.parameters()), torch.device("cpu"))
