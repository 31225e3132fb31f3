"""Chains that join in one loss: recognition in task graphs, and a dynamic program over all of them."""
