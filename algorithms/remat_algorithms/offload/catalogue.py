"""Catalogue of the algorithms that offload: metadata only."""

from __future__ import annotations

from remat_algorithms.offload.catalogue_exact import ALGORITHMS as EXACT

ALGORITHMS = (*EXACT,)
