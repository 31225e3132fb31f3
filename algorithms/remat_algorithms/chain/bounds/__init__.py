"""Lower bounds on what every sequential schedule of a chain in one memory recomputes."""
