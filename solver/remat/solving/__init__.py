"""From an instance to a verified result: `solve`, `verify`, `show`, and the questions around them."""
