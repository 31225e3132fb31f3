"""Algorithms for task trees."""
