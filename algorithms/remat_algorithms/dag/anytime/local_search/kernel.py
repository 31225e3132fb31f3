"""The compiled twin of `annealing.act`, from the same source (see `remat_algorithms.kit.compile`)."""

from __future__ import annotations

from remat_algorithms.dag.anytime.local_search import annealing
from remat_algorithms.kit.compile.lowering import Kernel

ACT = Kernel(annealing.act, long_loops=True)
