"""Orders of task graphs with a low peak, without recomputation."""
