"""The compiled twins of `local_search`'s functions, from the same source (see `remat_algorithms.kit.compile`)."""

from __future__ import annotations

from remat_algorithms.joint.pipe_plan import local_search
from remat_algorithms.kit.compile.lowering import Kernel

WALK = Kernel(local_search.walk)
DRIFT = Kernel(local_search.drift)
SCHEDULE = Kernel(local_search.schedule)
FIGURE = Kernel(local_search.figure)
TAKE = Kernel(local_search.take)
