"""Measurements of real runs: bytes of live storages, bytes from the allocator, time of each operator."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from statistics import median
from typing import Any, TypeVar

from remat.bridges.torch.shim import DispatchMode, StorageWeakRef, pytree, torch

Returned = TypeVar("Returned")


def storages_in(tree: Any) -> Iterator[Any]:
    """Yield the storages of all tensors in nested containers."""
    return (tensor.untyped_storage() for tensor in _dense_tensors(tree))


def _dense_tensors(tree: Any) -> Iterator[Any]:
    """Yield all tensors in nested containers; of sparse ones, the indices and the values."""
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, torch.Tensor):
            yield from (leaf._indices(), leaf._values()) if leaf.layout == torch.sparse_coo else (leaf,)


class LiveStorages(DispatchMode):
    """Counts the live bytes of storages that operators have created.

    Parameters
    ----------
    besides : iterable of tensors
        Tensors that do not count: parameters, buffers and inputs.

    Attributes
    ----------
    peak, now : int
    at : str
        The operator at the peak.
    runs : int
        Operators that ran.
    """

    def __init__(self, besides: Iterable[Any] = ()) -> None:
        super().__init__()
        self._besides = {storage._cdata: storage for storage in storages_in(list(besides))}
        self._alive: dict[int, tuple[Any, int]] = {}
        self.now = self.peak = self.runs = 0
        self.at = ""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let compiled functions run below it."""
        return True

    def sweep(self) -> None:
        """Forget the storages that are gone."""
        for key in [key for key, (storage, _) in self._alive.items() if storage.expired()]:
            self.now -= self._alive.pop(key)[1]

    def level(self) -> int:
        """Return the bytes that are alive now, and reset the peak to them."""
        self.sweep()
        self.peak = self.now
        return self.now

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and count its results."""
        self.sweep()
        returned = function(*args, **(kwargs or {}))
        self.adopt(returned)
        self.runs += 1
        if self.now > self.peak:
            self.peak, self.at = self.now, str(function)
        return returned

    def adopt(self, tree: Any) -> None:
        """Count the storages of tensors that are not counted yet."""
        for tensor in _dense_tensors(tree):
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._besides and key not in self._alive:
                size = self.size_of(tensor)
                self._alive[key] = (StorageWeakRef(storage), size)
                self.now += size

    def size_of(self, tensor: Any) -> int:
        """Bytes of a tensor's storage."""
        return int(tensor.untyped_storage().nbytes())


def unseen() -> Any:
    """Return a context in which no dispatch mode sees the operators that run."""
    modes: Any = import_module("torch.utils._python_dispatch")
    return modes._disable_current_modes()


def allocator_peak(call: Callable[[], Returned]) -> tuple[Returned, int]:
    """Return the result of a call, and the allocator's peak above its level before the call.

    Python's garbage collector is off meanwhile, because garbage of earlier calls would lower the level when freed.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _allocator_peak(call)
    finally:
        if collects:
            gc.enable()


def _allocator_peak(call: Callable[[], Returned]) -> tuple[Returned, int]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        returned = call()
        torch.cuda.synchronize()
        return returned, int(torch.cuda.max_memory_allocated() - before)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it says on standard error when it begins and ends
    profiler: Any = import_module("torch.profiler")
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        returned = call()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += int(event.nbytes())
        peak = max(peak, now)
    return returned, int(peak)


def clock() -> float:
    """Return seconds: CPU time if operators run on one thread of the CPU, because other programs do not affect it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def median_time(call: Callable[[], Any], repeats: int) -> float:
    """Return the median of the seconds that calls take."""
    taken: list[float] = []
    for _ in range(repeats):
        begin = clock()
        returned = call()
        taken.append(clock() - begin)
        del returned
    return median(taken)


def microseconds(seconds: Iterable[float]) -> int:
    """Return the median in whole microseconds, at least 1."""
    return max(1, round(median(seconds) * 1e6))


def workspace_of(call: Callable[[], Any], given: Any = ()) -> int:
    """Return the peak bytes that a call takes from the allocator, without its results that were not `given`."""
    returned, peak = allocator_peak(call)
    before = {storage._cdata for storage in storages_in(given)}
    kept = {storage._cdata: int(storage.nbytes()) for storage in storages_in(returned) if storage._cdata not in before}
    return max(0, peak - sum(kept.values()))
