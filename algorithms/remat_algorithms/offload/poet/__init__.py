"""POET: recomputation and paging of a graph in one integer program."""
