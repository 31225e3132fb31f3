"""Algorithms for heterogeneous chains."""
