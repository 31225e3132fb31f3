"""Linear, mixed-integer and constraint programs, and their solvers."""
