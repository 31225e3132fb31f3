"""Lower bounds on recomputation time from gaps, blocks and moments, for one order or for all orders."""
