"""Plans with reruns in a given order: built greedily, ruined and recreated, replayed."""
