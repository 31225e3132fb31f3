"""Compiled twin of `downset_table_kernel.fill`, from the same source (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.parallel.placement import downset_table_kernel

FILL = Kernel(downset_table_kernel.fill)
