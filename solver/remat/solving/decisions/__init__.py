"""Decisions of a schedule: what it keeps, recomputes, offloads and drops, as rows, arrays and a graph."""
