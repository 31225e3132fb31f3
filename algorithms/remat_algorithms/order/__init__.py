"""Algorithms for memory-aware orders of task graphs."""
