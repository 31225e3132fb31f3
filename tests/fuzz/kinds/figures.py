"""A source of figures: small with many zeros and ties, huge, fractional, or of very different magnitude."""

import random

READS = ("input", "output", "saved")
SIZES = (1, 1, 1, 1, 1, 3, 1000, 2**20 + 7, 2**50 + 1, 2**56, 2**58 - 1)
TIMES = (1, 1, 1, 1, 1, 1, 7, 10**10, 2**53 + 1, 2**59 + 1, 0.5, 0.1)
LARGE = 10**6
"""From this scale on, half of the figures differ by a few units: algorithms that round sizes cannot tell them apart."""


class Draw:
    """A source of figures on one scale.

    All figures may be `equal`, or (`wild`) of independent magnitudes. Times may be floats over 20 orders of magnitude
    (`spread`).
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.wild, self.spread, self.equal = self.chance(12), self.chance(8), self.chance(15)
        self.scale, self.time_scale = self.pick(SIZES), self.pick(TIMES)

    def chance(self, odds):
        """Return True once in `odds` times."""
        return self.random.randrange(odds) == 0

    def pick(self, choices):
        """Return one of the choices."""
        return self.random.choice(choices)

    def some(self, choices, most):
        """Return up to `most` different choices."""
        count = min(self.random.randint(0, most), len(choices))
        return self.random.sample(choices, count)

    def whole(self, least, most):
        """Return a whole number between two others, both included."""
        return self.random.randint(least, most)

    def size(self, most=6):
        """Return a number of bytes."""
        if self.wild:
            return self.random.randrange(10 ** self.random.randrange(17))
        if self.equal:
            return self.scale
        return self._figure(most, self.scale)

    def time(self, most=6):
        """Return a time."""
        if self.spread:
            return self.pick([0.0, 1.0, 10.0 ** self.random.uniform(-10, 10)])
        if self.wild:
            return self.random.randrange(10 ** self.random.randrange(17))
        if self.equal:
            return self.time_scale
        return self._figure(most, self.time_scale)

    def _figure(self, most, scale):
        figure = self.random.randint(0, most) * scale
        return figure + self.random.randint(0, 9) if scale >= LARGE and self.chance(2) else figure

    def seldom(self, document, odds, **values):
        """Set each key, once in `odds` times, to what its function returns."""
        for key, value in values.items():
            if self.chance(odds):
                document[key] = value()
