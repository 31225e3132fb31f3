"""The compiled twins of `walk`'s functions: the same text, in machine code (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.parallel.pipeline import keys, walk

WALK = Kernel(walk.walk)
DRIFT = Kernel(walk.drift)
SCHEDULE = Kernel(walk.schedule)
FIGURE = Kernel(walk.figure)
TAKE = Kernel(keys.take_times)
