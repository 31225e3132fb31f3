"""From sparse symmetric patterns to task trees: orderings, elimination trees, assembly trees."""
