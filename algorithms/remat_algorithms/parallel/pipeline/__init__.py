"""Pipelines: training steps in micro-batches on several devices."""
