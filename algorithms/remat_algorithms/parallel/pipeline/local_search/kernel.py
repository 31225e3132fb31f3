"""Compiled twins of the local search's functions, from the same source (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.parallel.pipeline.local_search import list_scheduling, moves, objective

WALK = Kernel(moves.walk)
DRIFT = Kernel(moves.drift)
SCHEDULE = Kernel(list_scheduling.schedule)
FIGURE = Kernel(objective.figure)
TAKE = Kernel(moves.take)
