"""Compiled twin of the local search's entry point, from the same source (see `kit.compile`)."""

from __future__ import annotations

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.parallel.pipeline.local_search import moves

ACT = Kernel(moves.act)
