"""Neural networks by formula: sizes and times of every stage or operator."""
