"""Traces of the PyTorch profiler in Chrome's format."""
