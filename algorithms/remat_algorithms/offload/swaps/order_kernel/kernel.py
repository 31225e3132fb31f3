"""The compiled twin of `timing.act`: the same source, in machine code (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.offload.swaps.order_kernel import timing

ACT = Kernel(timing.act)
