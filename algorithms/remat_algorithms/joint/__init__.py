"""Solvers that combine families: they plan with the answers of others."""
