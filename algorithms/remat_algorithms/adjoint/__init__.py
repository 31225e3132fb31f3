"""Algorithms for time-stepping adjoints."""
