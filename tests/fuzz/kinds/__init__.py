"""Instance documents of every kind, drawn by plain `random`, so that a number is all it takes to draw again."""
