"""Buffers and their addresses as CSV files of minimalloc."""
