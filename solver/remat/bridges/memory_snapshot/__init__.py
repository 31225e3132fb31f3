"""Snapshots of PyTorch's caching allocator."""
