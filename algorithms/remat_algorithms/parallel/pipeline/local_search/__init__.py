"""Local search over the orders of a pipeline: one kernel, for stages with one or with several options."""
