"""Compiled twins of the functions in `local_search`, from the same source (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.parallel.pipeline import local_search, priority_keys

WALK = Kernel(local_search.walk)
DRIFT = Kernel(local_search.drift)
SCHEDULE = Kernel(local_search.schedule)
FIGURE = Kernel(local_search.figure)
TAKE = Kernel(priority_keys.take_times)
