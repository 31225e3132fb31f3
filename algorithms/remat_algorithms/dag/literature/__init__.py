"""Published algorithms for rematerialisation on graphs, as their papers have them."""
