"""Orders of runs with what leaves, in columns: how long they take, without their steps; for searches."""
