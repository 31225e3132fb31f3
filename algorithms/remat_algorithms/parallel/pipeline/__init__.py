"""Pipeline schedules: several devices, each with some stages of a model, and many micro-batches."""
