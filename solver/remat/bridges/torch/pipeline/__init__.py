"""Pipelines of a PyTorch module: its layers, their costs, and the execution of a plan on several ranks."""
