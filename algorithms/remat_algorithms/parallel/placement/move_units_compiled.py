"""The compiled twin of `walk.walk`: the same text, in machine code (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.parallel.placement import move_units

WALK = Kernel(move_units.walk)
