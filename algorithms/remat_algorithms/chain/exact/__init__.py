"""All schedules of a short chain, by a shortest path over what is resident."""
