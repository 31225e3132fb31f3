"""Questions that take many solves: the least budget, the largest batch, the curve."""
