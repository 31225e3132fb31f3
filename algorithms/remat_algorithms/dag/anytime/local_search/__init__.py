"""Simulated annealing over sequences of runs in any order."""
