"""Placement: which device runs each task of a stream, and which memories hold its parameters."""
