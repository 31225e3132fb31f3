"""Benchmarks: speed as figures and ratios of one run, never asserted in tests. `python -m benchmarks --help`."""
