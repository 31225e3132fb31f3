"""PyTorch: a training step as a task graph, and a plan as two graphs that PyTorch runs. `remat.torch` is its face."""
