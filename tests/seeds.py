"""Seeds of drawn instances: the first ones in every run, the others where the slow tests run, too."""

import pytest


def seeds(fast, every):
    """Return the numbers below `every`; those from `fast` on are slow."""
    return [*range(fast), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(fast, every))]
