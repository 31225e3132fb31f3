"""Bounds for all schedules of a chain on a machine with several memories."""
