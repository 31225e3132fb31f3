"""Plans as checkpointing policies of other programs: the closest policy, verified, and what it cannot express."""
