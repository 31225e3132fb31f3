"""Floating checkpoints: kept values may be dropped before their last read."""
