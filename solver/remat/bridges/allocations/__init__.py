"""Timelines of allocations from profilers: contents of the peak, and candidates for recomputation or offloading."""
