"""`dag-auto`: an anytime rematerialization solver for task graphs, with proved bounds."""
