"""`piper`: stages, tensor and data degrees, and recomputation, by one table."""
