"""The compiled twin of `annealing.act`: the same text, in machine code (see `kit.compile`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from remat_algorithms.dag.anytime.walks import annealing
from remat_algorithms.dag.anytime.walks.walk import Walk
from remat_algorithms.dag.plans.packed import Packed
from remat_algorithms.kit.compile.lowering import compiled


@dataclass
class _Kernel:
    anneal: Callable[..., bool] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_KERNEL = _Kernel()


def anneal(tables: Packed, walk: Walk) -> Callable[..., bool]:
    """Return `annealing.act`, compiled for arrays of such types; it takes their layouts."""
    with _KERNEL.lock:
        if _KERNEL.anneal is None:
            _KERNEL.anneal = compiled(annealing.act, {"Packed": tables, "Walk": walk}, long_loops=True)
        return _KERNEL.anneal
