"""Chains that meet in one loss: seen in task graphs, and solved by a dynamic program over all of them."""
