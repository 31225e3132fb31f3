"""Lower bounds on the recomputation of every sequential schedule of a chain in one memory."""
