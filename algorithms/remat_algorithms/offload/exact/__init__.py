"""The exact program for offloading and recomputation on small graphs."""
