"""`dag-offload-best`: recomputation and offloading together, on any task graph."""
