"""The compiled twins of `walk`'s functions: the same text, in machine code (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.parallel.pipeline.hosted import walk

WALK = Kernel(walk.walk)
SCHEDULE = Kernel(walk.schedule)
FIGURE = Kernel(walk.figure)
TAKE = Kernel(walk.take)
