"""From an instance to a verified result: `solve`, `verify`, `show`, and questions that use them."""
