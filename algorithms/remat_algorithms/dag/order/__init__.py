"""Orders of task graphs that need little memory, nothing made twice."""
