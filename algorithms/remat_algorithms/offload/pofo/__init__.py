"""POFO: optimal offloading and recomputation of chains with overlapped copies."""
