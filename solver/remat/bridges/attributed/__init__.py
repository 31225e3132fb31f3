"""Directed graphs with attributes, as GraphML and DOT have them, become task graphs."""
