"""The compiled twin of `ruin_and_recreate.act`, from the same source (see `remat_algorithms.kit.compile`).

Compilation takes less than a second, once in each process that needs it.
"""

from __future__ import annotations

from remat_algorithms.dag.plans import ruin_and_recreate
from remat_algorithms.kit.compile.lowering import Kernel

ACT = Kernel(ruin_and_recreate.act)
