"""Questions that take many solves: the minimum budget, the largest batch, the time-memory curve."""

QUESTIONS = frozenset(["max_overhead", "max_makespan", "scale", "batch"])
"""Options of `remat solve` that ask a question around it, unless the algorithm has one of that name itself."""
