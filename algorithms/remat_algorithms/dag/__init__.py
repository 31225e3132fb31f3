"""Algorithms for task graphs."""
