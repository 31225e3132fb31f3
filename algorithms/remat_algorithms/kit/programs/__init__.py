"""Linear, mixed-integer and constraint programs, and the solvers that are asked."""
