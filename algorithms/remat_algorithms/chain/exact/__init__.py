"""All schedules of a short chain, by shortest paths over live sets."""
