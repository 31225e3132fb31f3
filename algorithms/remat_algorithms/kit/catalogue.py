"""Algorithm names shared by several catalogues."""

from __future__ import annotations

GENERAL = (
    "adjoint-best",
    "chain-best",
    "dag-auto",
    "dag-offload-best",
    "join-dp",
    "liu",
    "remat-offload-best",
    "rotor",
    "weight-offload",
    "zero",
)
"""Algorithms that search beyond the constructions of the literature; each calls these or never does worse."""
