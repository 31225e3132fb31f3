"""Adjoints of any steps on any levels: the best of the families, a table over bytes, and local search."""
