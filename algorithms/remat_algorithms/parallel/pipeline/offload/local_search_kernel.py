"""Compiled twins of the functions in `local_search`, from the same source (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.parallel.pipeline.offload import local_search

WALK = Kernel(local_search.walk)
SCHEDULE = Kernel(local_search.schedule)
FIGURE = Kernel(local_search.figure)
TAKE = Kernel(local_search.take)
