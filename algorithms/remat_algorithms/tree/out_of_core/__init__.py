"""Algorithms for task trees that exceed the memory, with evictions to a second memory."""
