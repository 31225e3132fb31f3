"""Bounds for all schedules of a chain on a machine with memories besides the processor's."""
