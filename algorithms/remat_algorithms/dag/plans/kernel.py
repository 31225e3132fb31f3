"""The compiled twin of `ruin.act`: the same text, in machine code (see `kit.compile`).

Compiling it takes less than a second, once in each process that needs it.
"""

from __future__ import annotations

from remat_algorithms.dag.plans import ruin_and_recreate
from remat_algorithms.kit.compile.lowering import Kernel

ACT = Kernel(ruin_and_recreate.act)
