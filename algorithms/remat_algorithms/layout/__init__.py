"""Addresses of buffers with known lifetimes."""
