"""All schedules of a small task graph, by a shortest path, walked backwards, over what a schedule's rest needs."""
