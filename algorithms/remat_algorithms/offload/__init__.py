"""Offloading: move values to a larger memory and back, overlapped with computation."""
