"""Persistent checkpoints: the dynamic program of rotor, its table, rounding and whole curves."""
