"""Shared by the offloading algorithms: swaps, their routes, and start times of transfers."""
