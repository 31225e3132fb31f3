"""Parameters that begin in a slower memory, and optimizer states."""
