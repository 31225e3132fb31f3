"""Equal steps on one level: the closed forms of binomial checkpointing, offline and online."""
