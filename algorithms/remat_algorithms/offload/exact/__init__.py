"""The exact program for offloading and recomputing on small graphs."""
