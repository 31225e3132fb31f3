"""The parts of the referee: simulate timed steps, note broken rules, measure figures."""
