"""Solvers that combine families: their plans start from the answers of other algorithms."""
