"""A plugin of pytest: hypothesis draws the same examples for every fault, and does not make smaller what it finds."""

from hypothesis import Phase, settings

settings.register_profile(
    "mutants", derandomize=True, database=None, deadline=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("mutants")
