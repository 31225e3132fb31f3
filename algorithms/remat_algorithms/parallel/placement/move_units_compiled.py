"""Compiled twin of `move_units.walk`, from the same source (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.parallel.placement import move_units

WALK = Kernel(move_units.walk)
