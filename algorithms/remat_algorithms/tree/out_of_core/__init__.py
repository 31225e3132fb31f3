"""Algorithms for task trees that do not fit, with evictions to a second memory."""
