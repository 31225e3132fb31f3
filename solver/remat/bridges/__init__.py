"""In and out of other programs: formats and packages of others, one folder each."""
