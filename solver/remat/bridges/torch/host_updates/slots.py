"""A trained parameter with its copy, gradient and copies in flight at a host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any

from remat.bridges.torch.measure import unseen
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.bridges.torch.transfers import copy_on
from remat.units import format_budget, format_size


class HostMemory:
    """Bytes of a host; both threads take and give.

    Parameters
    ----------
    capacity : int
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.used = capacity, 0
        self.lock = Lock()

    def take(self, size: int, what: str) -> None:
        """Take bytes for something.

        Raises
        ------
        TorchError
            If too few are left.
        """
        with self.lock:
            left = self.capacity - self.used
            if size > left:
                raise TorchError(
                    f"{what} takes {format_size(size)} at the host, which has {format_size(left)} left of "
                    f"{format_budget(self.capacity)}"
                )
            self.used += size

    def give(self, size: int) -> None:
        """Give bytes back."""
        with self.lock:
            self.used -= size


class Slot:
    """The data of one trained parameter at the host.

    Attributes
    ----------
    name : str
    parameter : tensor
        On the device.
    master : tensor
        The parameter at the host, which updates change.
    gradient, applied : tensor or None
        At the host: the one that waits for its update, and the one of the update that has begun.
    update : Future or None
        The update that was begun and whose result is not on the device yet.
    new : tensor or None
        The result of the update, in the type of the parameter.
    served : tensor or None
        The values that come to the device, where these are not those of an update that has begun.
    is_away, stays_away : bool
        Whether the parameter's storage on the device is empty now, and whether new values stay at the host.
    """

    def __init__(self, name: str, parameter: Any, kind: Any, link: Link, memory: HostMemory) -> None:
        self.name = name
        self.parameter = parameter
        self.link, self.memory = link, memory
        kind = kind or parameter.dtype
        memory.take(parameter.numel() * kind.itemsize, f"a copy of {name}")
        with unseen():
            self.master = link.buffer(parameter, kind)
        self.gradient: Any = None
        self.applied: Any = None
        self.update: Future[None] | None = None
        self.new: Any = None
        self.sent: Any = None
        self.returned: Any = None
        self.served: Any = None
        self.is_away = False
        self.stays_away = False
        self._seen: Any = None
        self.refresh()

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the copies of the parameter at the host."""
        return sum(int(one.nbytes) for one in (self.master, self.served) if one is not None)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of gradients at the host."""
        return sum(int(one.nbytes) for one in (self.gradient, self.applied) if one is not None)

    def take(self, gradient: Any) -> None:
        """Copy a gradient to the host, or add it to the gradient at the host."""
        self.memory.take(int(gradient.nbytes), f"the gradient of {self.name}")
        with unseen(), torch.no_grad():
            target = self.link.buffer(gradient, gradient.dtype)
            sent = self.link.send(gradient.detach(), target)
            if self.gradient is None:
                self.gradient, self.sent = target, sent
                return
            for event in (self.sent, sent):
                if event is not None:
                    event.synchronize()
            self.gradient.add_(target)
            self.sent = None
        self.memory.give(int(gradient.nbytes))

    def forget(self) -> None:
        """Drop the gradient that waits."""
        if self.gradient is not None:
            self.memory.give(int(self.gradient.nbytes))
            self.gradient = None

    def is_changed(self) -> bool:
        """Whether the parameter was written by something other than an update, such as `load_state_dict`."""
        return not self.stays_away and bool((self.parameter._version, self.parameter.data_ptr()) != self._seen)

    def refresh(self) -> None:
        """Copy the parameter to the host."""
        with unseen(), torch.no_grad():
            self.master.copy_(self.parameter.detach())
        self.new = None
        self._serve()
        self._note()

    def keep_apart(self) -> None:
        """Let updates change other memory than that which comes to the device."""
        self.memory.take(int(self.parameter.nbytes), f"a second copy of {self.name}")
        with unseen():
            self.served = self.link.buffer(self.parameter, self.parameter.dtype)
        self._serve()

    def _serve(self) -> None:
        if self.served is None:
            return
        if self.returned is not None:
            self.returned.synchronize()
        with unseen(), torch.no_grad():
            self.served.copy_(self.master if self.new is None else self.new)
        self.new = None

    def settle(self) -> None:
        """Copy the result of the update to the device, once it is there; a parameter that others wrote stays."""
        assert self.update is not None
        error = self.update.exception()  # waits; until then, an interrupt leaves the update as it is
        self.update = None
        if error is not None:
            if not self.stays_away:
                self.refresh()  # the update may have changed the copy before it failed
            raise error
        if self.stays_away:
            self.link.wait(self.returned)
            self.leave()  # what is still on the device is from before the update
            self._serve()
        elif self.is_changed():
            self.refresh()
        else:
            self.returned = self.link.bring(self.new, self.parameter)
            self.new = None
            self._note()

    def values(self) -> Any:
        """Return the values at the host that the device may use."""
        if self.served is not None:
            return self.served
        return self.master if self.new is None else self.new

    def check_still(self) -> None:
        """Refuse to use the copy at the host while the thread changes it."""
        if self.update is not None:
            call = "step()" if self.served is None else "the optimizer's finish()"
            raise TorchError(f"{self.name} is being updated at the host: call {call} first")

    def leave(self) -> None:
        """Free the parameter on the device; its values are at the host."""
        if self.is_changed():
            self.refresh()
        self.is_away = self.stays_away = True
        self.parameter.untyped_storage().resize_(0)

    def come(self) -> Any:
        """Copy the parameter to the device, and return the event of the end of the copy.

        Graphs that hold the parameter do not take it as changed.

        Raises
        ------
        TorchError
            If it is being updated, unless it is kept apart from updates.
        """
        if self.served is None:
            self.check_still()
        self.is_away = False
        with unseen(), torch.no_grad():
            new = self.values()
            storage = self.parameter.untyped_storage()
            storage.resize_(self.parameter.nbytes)
            shape = (self.parameter.storage_offset(), self.parameter.size(), self.parameter.stride())
            target = torch.empty(0, dtype=self.parameter.dtype, device=self.parameter.device).set_(storage, *shape)
            self.returned = self.link.fetch(new, target)
            return self.returned

    def _note(self) -> None:
        self._seen = (self.parameter._version, self.parameter.data_ptr())

    def begin(self, submit: Callable[[Callable[[], None]], Future[None]], step: Callable[[], None]) -> None:
        """Let a thread update the copy at the host."""
        if self.is_changed():
            self.refresh()
        self.applied, self.gradient = self.gradient, None
        events = [event for event in (self.sent, self.returned) if event is not None]
        self.update = submit(lambda: self._renew(events, step))

    def _renew(self, events: Sequence[Any], step: Callable[[], None]) -> None:
        try:
            for event in events:
                event.synchronize()
            self.master.grad = self.applied.to(self.master.dtype)
            step()
        finally:
            self.memory.give(int(self.applied.nbytes))
            self.master.grad = self.applied = None
        if self.master.dtype == self.parameter.dtype:
            self.new = self.master
        else:
            self.new = self.link.buffer(self.parameter, self.parameter.dtype)
            with torch.no_grad():
                self.new.copy_(self.master)


class Link:
    """Copies between a device and its host: plain ones."""

    def buffer(self, like: Any, kind: Any) -> Any:
        """Return new memory at the host for a tensor, in another type."""
        return torch.empty(like.shape, dtype=kind, device="cpu")

    def send(self, tensor: Any, target: Any) -> Any:
        """Copy a tensor to the host, and return the event of its end; None: it has ended."""
        target.copy_(tensor)

    def bring(self, new: Any, parameter: Any) -> Any:
        """Copy a result to the device, and return the event of its end."""
        with torch.no_grad():
            parameter.copy_(new)

    def fetch(self, new: Any, target: Any) -> Any:
        """Copy a parameter into new memory of the device, and return the event of its end."""
        target.copy_(new)

    def wait(self, event: Any) -> None:
        """Let the compute stream begin what follows after a copy."""


class Streams(Link):
    """Copies with pinned buffers, on one stream in each direction.

    Each copy begins after all earlier operations of the compute stream. An offloaded tensor is kept alive until the
    compute stream has waited for its copy, or the copy has ended.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.out, self.back = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.leaving: list[tuple[Any, Any]] = []

    def buffer(self, like: Any, kind: Any) -> Any:
        """Return pinned memory, which PyTorch's allocator of the host uses again."""
        return _pinned(like.shape, kind)

    def send(self, tensor: Any, target: Any) -> Any:
        """Copy on the stream to the host."""
        self._forget_ended()
        event = copy_on(self.out, self.device, tensor, target)
        self.leaving.append((tensor, event))
        return event

    def bring(self, new: Any, parameter: Any) -> Any:
        """Copy on the stream to the device, and let the compute stream wait."""
        self._forget_ended()
        with torch.no_grad():
            event = copy_on(self.back, self.device, new, parameter)
        self.wait(event)
        return event

    def fetch(self, new: Any, target: Any) -> Any:
        """Copy on the stream to the device."""
        return copy_on(self.back, self.device, new, target)

    def wait(self, event: Any) -> None:
        """Let the compute stream wait, and forget tensors whose copies it has waited for."""
        if event is None:
            return
        torch.cuda.current_stream(self.device).wait_event(event)
        self.leaving = [(held, other) for held, other in self.leaving if other is not event]

    def _forget_ended(self) -> None:
        self.leaving = [(held, event) for held, event in self.leaving if not event.query()]


def _pinned(shape: Any, kind: Any) -> Any:
    return torch.empty(shape, dtype=kind, pin_memory=True)


def link_for(device: Any) -> Link:
    """Return the copies between a device and its host."""
    return Streams(device) if device.type == "cuda" else Link()
