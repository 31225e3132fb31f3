"""Adjoints of any steps on any levels: the best of all families, a table over bytes, and local search."""
