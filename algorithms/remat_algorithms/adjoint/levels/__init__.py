"""Equal steps on several storage levels: hierarchical, disk, two-level and multistage checkpointing."""
