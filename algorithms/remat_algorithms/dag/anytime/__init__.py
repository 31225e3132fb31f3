"""`dag-auto`: an anytime rematerialisation solver for task graphs, with certificates."""
