"""POFO: optimal offloading and recomputing of chains whose copies overlap."""
