"""Persistent checkpoints: the dynamic program of rotor, with its fronts, limits, schedules and memory curves."""
