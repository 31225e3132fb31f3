"""Optimizers whose states and updates are at a host: planning, copies, and execution."""
