"""The compiled twin of `annealing.act`: the same text, in machine code (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.dag.anytime.local_search import annealing
from remat_algorithms.kit.compile.lowering import Kernel

ACT = Kernel(annealing.act, long_loops=True)
