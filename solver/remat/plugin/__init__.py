"""What an algorithm's author needs, and the registry that finds algorithms."""
