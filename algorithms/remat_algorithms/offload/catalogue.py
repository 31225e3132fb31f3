"""Catalogue of the offloading algorithms: metadata only, one part a file."""

from __future__ import annotations

from remat.registry import Algorithm
from remat_algorithms.offload.catalogue_weights import ALGORITHMS as WEIGHTS

ALGORITHMS: tuple[Algorithm, ...] = (*WEIGHTS,)
