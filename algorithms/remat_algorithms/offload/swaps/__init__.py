"""What the offloading algorithms share: swaps, their routes, and when each transfer starts."""
