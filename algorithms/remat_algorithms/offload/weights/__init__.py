"""Parameters that begin in a slower memory, and optimiser states."""
