"""Published algorithms for rematerialisation on graphs, as their papers describe them."""
