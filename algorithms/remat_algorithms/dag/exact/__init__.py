"""Exact search over all schedules of a small task graph: a shortest path, from the end, over required values."""
