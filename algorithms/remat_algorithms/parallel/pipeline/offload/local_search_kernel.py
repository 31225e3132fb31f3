"""The compiled twins of `walk`'s functions: the same text, in machine code (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.parallel.pipeline.offload import local_search

WALK = Kernel(local_search.walk)
SCHEDULE = Kernel(local_search.schedule)
FIGURE = Kernel(local_search.figure)
TAKE = Kernel(local_search.take)
