"""Tools shared by the algorithm families; private to this package, without stability promises."""
