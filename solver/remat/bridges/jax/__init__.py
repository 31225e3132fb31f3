"""JAX: training steps become task graphs, and plans become checkpoint policies."""
