"""Sparse matrices in MatrixMarket files, as task trees of their factorisation."""
