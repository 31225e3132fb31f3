"""Parameters of blocks that are on the device only while a schedule needs them, and copies of their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from remat.bridges.torch.blocks import AT_HOST, Block
from remat.bridges.torch.host_updates.chains import trained_in
from remat.bridges.torch.host_updates.optimizer import HostOptimizer
from remat.bridges.torch.host_updates.slots import Slot
from remat.bridges.torch.measure import unseen
from remat.bridges.torch.recording import TorchError


class Weights:
    """Parameters of blocks; creating this object moves them to the host.

    A parameter on the host keeps its tensor, whose storage is empty. Files of the module (`state_dict`) have the copies
    of the host.

    Parameters
    ----------
    blocks : sequence of Block
    optimizer : HostOptimizer
        The optimizer of all parameters of the blocks that need gradients.
    """

    def __init__(self, blocks: Sequence[Block], optimizer: HostOptimizer) -> None:
        if not optimizer.overlap:
            raise TorchError("gradients of blocks leave within the backward and are applied there: overlap=True")
        self.optimizer = optimizer
        self.slots: list[list[Slot]] = []
        self.sent: list[list[Any]] = [[] for _ in blocks]
        self.arrived: list[Any] = [None] * len(blocks)
        for block in blocks:
            found = [optimizer.slots.get(id(tensor)) for tensor in trained_in(block)]
            if any(slot is None for slot in found):
                raise TorchError(f"block {block.name} has a parameter that the optimizer does not have")
            self.slots.append([slot for slot in found if slot is not None])
        self.runs = 0
        optimizer.defer()
        for index, block in enumerate(blocks):
            for slot in self.slots[index]:
                if optimizer.stale:
                    slot.keep_apart()
                slot.leave()
            self._keep_files(index, block.module)
            self._guard(block)

    def fetch(self, index: int) -> None:
        """Take memory on the device, and copy the parameters of a block there."""
        self.arrived[index] = [slot.come() for slot in self.slots[index]]

    def send(self, index: int) -> None:
        """Copy the gradients of a block to the host, where their updates begin."""
        for slot in self.slots[index]:
            gradient, slot.parameter.grad = slot.parameter.grad, None
            if gradient is not None:
                self.sent[index].append(gradient)
                self.optimizer.receive(slot.parameter, gradient)

    def wait(self, kind: str, index: int) -> None:
        """Let the next operations begin after the latest copies."""
        for position, slot in enumerate(self.slots[index]):
            events = self.arrived[index]
            slot.link.wait(slot.sent if kind == "g" else events and events[position])

    def release(self, index: int) -> None:
        """Free the parameters of a block on the device."""
        for slot in self.slots[index]:
            slot.leave()

    def forget(self, index: int) -> None:
        """Free the gradients of a block on the device."""
        self.sent[index].clear()

    @contextmanager
    def there(self, index: int) -> Iterator[None]:
        """Keep the parameters of a block on the device within the context."""
        absent = [slot for slot in self.slots[index] if slot.is_away]
        for slot in absent:
            slot.link.wait(slot.come())
        try:
            yield
        finally:
            for slot in absent:
                slot.leave()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the blocks be called, whose parameters come as they are needed."""
        self.runs += 1
        try:
            yield
        finally:
            self.runs -= 1

    def _guard(self, block: Block) -> None:
        """Refuse copies of a block, and calls outside the planned module: its parameters are at the host."""

        def check(*_: Any) -> None:
            if not self.runs:
                raise TorchError(f"block {block.name} has its parameters at the host: call the module from apply")

        def refuse(_: int) -> Any:
            raise TorchError(
                f"block {block.name} has its parameters at the host, and cannot be copied; save state_dict()"
            )

        block.module.__dict__[AT_HOST] = True
        block.module.register_forward_pre_hook(check)
        block.module.__dict__["__reduce_ex__"] = refuse  # copy.deepcopy and pickle would read freed memory

    def _keep_files(self, index: int, block: Any) -> None:
        """Let `state_dict` of a block return the copies at the host, and `load_state_dict` write them."""
        slots = {id(slot.parameter): slot for slot in self.slots[index]}
        named = [
            (name, slots[id(tensor)])
            for name, tensor in block.named_parameters(remove_duplicate=False)
            if id(tensor) in slots
        ]
        open_now: list[Any] = []

        def saved(_: Any, found: dict[str, Any], prefix: str, *__: Any) -> None:
            for name, slot in named:
                if prefix + name in found and slot.is_away:
                    if slot.served is None:
                        slot.check_still()
                    with unseen():
                        found[prefix + name] = slot.values().detach().to(slot.parameter.dtype, copy=True)

        def before(*_: Any) -> None:
            for slot in self.slots[index]:
                slot.check_still()
            context = self.there(index)
            context.__enter__()
            open_now.append(context)

        def after(*_: Any) -> None:
            for slot in self.slots[index]:
                slot.refresh()
            if open_now:
                open_now.pop().__exit__(None, None, None)

        block.register_state_dict_post_hook(saved)
        block.register_load_state_dict_pre_hook(before)
        block.register_load_state_dict_post_hook(after)
