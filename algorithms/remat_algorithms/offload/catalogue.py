"""Catalogue of the offloading algorithms: metadata only, one part a file."""

from __future__ import annotations

from remat.registry import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = ()
