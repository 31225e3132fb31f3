"""Pictures of a schedule, or of time-memory curves, with matplotlib."""
