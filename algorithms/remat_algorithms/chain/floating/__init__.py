"""Floating checkpoints: kept values may be given up before they are read last."""
