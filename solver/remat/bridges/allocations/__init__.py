"""Timelines of allocations from profilers: what held the peak, and what could have been elsewhere."""
