"""Steps of different times, and states that share one memory with their adjoints."""
