"""`pipe-plan`: cuts, orders and recomputation of a pipeline, searched together."""
