"""Copies between a device and its host: plain ones, and those on CUDA streams with pinned buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from remat.bridges.torch.measure import median_time, unseen
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.units import format_size

DEVICE, HOST = "device", "host"
"""Names of the two memories in instances."""


@dataclass
class Away:
    """A value at the host.

    Attributes
    ----------
    buffer : tensor
    shapes : mapping of str to (dtype, offset, size, stride)
        The tensors that look at the value, by name.
    device : torch.device
    size : int
        Bytes.
    event : event or None
        The end of its latest copy; None if that copy has ended.
    """

    buffer: Any
    shapes: Mapping[str, tuple[Any, int, Any, Any]]
    device: Any
    size: int
    event: Any = None


class Transfers(Protocol):
    """The copies of a program; each is issued and returns at once."""

    def offload(self, tensors: Mapping[str, Any]) -> Away:
        """Copy the storage of these tensors, which is one, to the host."""
        ...

    def reload(self, away: Away) -> dict[str, Any]:
        """Take memory on the device, and copy a value into it."""
        ...

    def wait(self, away: Away) -> None:
        """Let the next operations of the compute stream begin after the latest copy of a value."""

    def release(self, away: Away) -> None:
        """Give the memory of a value at the host back, after the wait for its last copy."""


def transfers_for(device: Any, host: int | None = None) -> Transfers:
    """Return the copies between a device and its host; `host` limits the bytes of their buffers."""
    return Streams(device, host) if device.type == "cuda" else Plain()


class Plain:
    """Synchronous copies, for a device without streams; a value at the host is a copy of its storage."""

    def offload(self, tensors: Mapping[str, Any]) -> Away:
        """Copy a storage; counters of device bytes do not see the copy."""
        storage = _storage(tensors)
        with unseen():
            copied = torch.empty(0, dtype=torch.uint8, device=_device(tensors)).set_(storage).clone()
        return Away(copied, _shapes(tensors), _device(tensors), int(storage.nbytes()))

    def reload(self, away: Away) -> dict[str, Any]:
        """Copy it back into new memory."""
        fresh = torch.empty(away.size, dtype=torch.uint8, device=away.device).untyped_storage()
        with unseen():
            fresh.copy_(away.buffer.untyped_storage())
        return _looking_at(fresh, away)

    def wait(self, away: Away) -> None:
        """Return at once: copies have ended."""

    def release(self, away: Away) -> None:
        """Forget the copy."""
        away.buffer = None


class Streams:
    """One stream in each direction, and pinned buffers that are used again.

    A stream begins a copy after all earlier operations of the compute stream. Memory of the device therefore belongs
    only to the compute stream, and the allocator need not know the others (`record_stream`).

    Parameters
    ----------
    device : torch.device
    host : int or None
        Bytes of all buffers.
    """

    def __init__(self, device: Any, host: int | None) -> None:
        self.device = device
        self.host = host
        self.out, self.back = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.taken = 0
        self.free: dict[int, list[Any]] = {}

    def _buffer(self, size: int) -> Any:
        """Return a pinned buffer of this size, preferably a used one."""
        if self.free.get(size):
            return self.free[size].pop()
        if self.host is not None and self.taken + size > self.host:
            kept = sum(other * len(buffers) for other, buffers in self.free.items())
            self.taken -= kept
            self.free.clear()
        if self.host is not None and self.taken + size > self.host:
            raise TorchError(
                f"the host has {format_size(self.host)} for buffers, and {format_size(size)} more is needed"
            )
        self.taken += size
        return _pinned(size)

    def offload(self, tensors: Mapping[str, Any]) -> Away:
        """Copy a storage on the stream to the host."""
        storage = _storage(tensors)
        away = Away(self._buffer(storage.nbytes()), _shapes(tensors), self.device, int(storage.nbytes()))
        self._copy(self.out, away, away.buffer, torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage))
        return away

    def reload(self, away: Away) -> dict[str, Any]:
        """Copy it back on the stream from the host."""
        fresh = torch.empty(away.size, dtype=torch.uint8, device=self.device)
        self.back.wait_event(away.event)
        self._copy(self.back, away, fresh, away.buffer)
        return _looking_at(fresh.untyped_storage(), away)

    def _copy(self, stream: Any, away: Away, target: Any, source: Any) -> None:
        away.event = copy_on(stream, self.device, source, target)

    def wait(self, away: Away) -> None:
        """Let the compute stream wait for the event of the latest copy."""
        torch.cuda.current_stream(self.device).wait_event(away.event)

    def release(self, away: Away) -> None:
        """Keep the buffer; a later copy into it begins after this point of the compute stream."""
        self.free.setdefault(away.size, []).append(away.buffer)
        away.buffer = None


def copy_on(stream: Any, device: Any, source: Any, target: Any) -> Any:
    """Copy on a stream, after all earlier operations of the compute stream, and return the event of its end."""
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        target.copy_(source, non_blocking=True)
    return stream.record_event()


def _pinned(size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def _storage(tensors: Mapping[str, Any]) -> Any:
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors.values()}
    if len(storages) != 1:
        raise TorchError(f"{', '.join(tensors) or 'a value'} is in {len(storages)} storages, and one is copied")
    return next(iter(storages.values()))


def _device(tensors: Mapping[str, Any]) -> Any:
    return next(iter(tensors.values())).device


def _shapes(tensors: Mapping[str, Any]) -> dict[str, tuple[Any, int, Any, Any]]:
    return {
        name: (tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride())
        for name, tensor in tensors.items()
    }


def _looking_at(storage: Any, away: Away) -> dict[str, Any]:
    """Return the tensors of an offloaded value, on a new storage."""
    return {
        name: torch.empty(0, dtype=dtype, device=away.device).set_(storage, offset, size, stride)
        for name, (dtype, offset, size, stride) in away.shapes.items()
    }


# --------------------------------------------------------------------------------------------- in graphs


@cache
def _known(device: Any, host: int | None) -> Transfers:
    return transfers_for(device, host)


def offload(tensor: Any, host: int | None) -> Any:
    """Copy a tensor's storage to the host, and return the buffer, which refers to the copy."""
    away = _known(tensor.device, host).offload({"": tensor})
    buffer, away.buffer = away.buffer, None
    buffer.remat_away = away
    return buffer


def reload(buffer: Any, host: int | None) -> Any:
    """Copy a value back, and return its tensor."""
    away = buffer.remat_away
    away.buffer = buffer
    returned = _known(away.device, host).reload(away)[""]
    away.buffer = None
    return returned


def wait(buffers: Sequence[Any], _: Sequence[Any], host: int | None) -> None:
    """Let the compute stream wait for the latest copies of values; the other arguments stay alive until then."""
    for buffer in buffers:
        _known(buffer.remat_away.device, host).wait(buffer.remat_away)


def release(buffer: Any, host: int | None) -> None:
    """Give a buffer back."""
    away = buffer.remat_away
    away.buffer = buffer
    _known(away.device, host).release(away)


@cache
def measured_rate(device: Any, size: int = 1 << 26) -> int:
    """Measure copies to and from the host once, and return the bytes per second of the slower direction."""
    transfers = transfers_for(device)
    tensor = torch.empty(size, dtype=torch.uint8, device=device)
    away = transfers.offload({"": tensor})
    there = median_time(lambda: transfers.offload({"": tensor}), 3)
    back = median_time(lambda: transfers.reload(away), 3)
    return max(1, int(size / max(there, back)))


def links_both_ways(rate: float | str) -> list[dict[str, Any]]:
    """Return the documents of links between a device and its host; a number is in bytes per second."""
    bandwidth = rate if isinstance(rate, str) else f"{int(rate)}B/s"
    ends = ((DEVICE, HOST), (HOST, DEVICE))
    return [{"source": one, "target": two, "bandwidth": bandwidth} for one, two in ends]
