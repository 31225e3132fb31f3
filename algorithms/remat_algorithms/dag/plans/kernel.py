"""The compiled twin of `ruin.act`: the same text, in machine code.

Compiling it takes less than a second, once in each process that needs it. Nothing is kept on disk, so that a first
start is like any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from remat_algorithms.dag.plans import ruin
from remat_algorithms.dag.plans.packed import Packed, Room, Work
from remat_algorithms.kit.compile.lowering import compiled


@dataclass
class _Kernel:
    act: Callable[..., bool] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_KERNEL = _Kernel()


def act(tables: Packed, work: Work, room: Room) -> Callable[..., bool]:
    """Return `ruin.act`, compiled for arrays of such types; it takes their layouts."""
    with _KERNEL.lock:
        if _KERNEL.act is None:
            _KERNEL.act = compiled(ruin.act, {"Packed": tables, "Work": work, "Room": room})
        return _KERNEL.act
