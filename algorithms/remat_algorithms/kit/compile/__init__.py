"""A small just-in-time compiler for kernels that are written once in plain Python."""
