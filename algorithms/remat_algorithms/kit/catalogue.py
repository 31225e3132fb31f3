"""Names that several catalogues share."""

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
"""Algorithms that search what those of the literature build by a rule, and ask these, or never do worse."""
