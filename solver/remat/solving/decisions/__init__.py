"""Decisions of a schedule: kept, recomputed, offloaded and dropped values, as rows, arrays and a graph."""
