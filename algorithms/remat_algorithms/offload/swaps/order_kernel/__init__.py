"""Orders of runs with offloading, in arrays: their makespans without their steps, for searches."""
