"""Plans with reruns in a given order: greedy construction, ruin and recreate, and replay."""
