"""A Gaussian process on a few points, for searches whose every evaluation is expensive (Bayesian optimisation).

Mockus 1975; Jones, Schonlau, Welch 1998, "Efficient global optimization of expensive black-box functions". Values are
standardised. The covariance of two points is exp(-|a - b|^2 / (2 l^2)); of a few length scales l, the one of the
largest marginal likelihood is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

SCALES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Length scales, for coordinates of the order of 1."""

NOISE = 1e-6
"""Variance added to each value, as a share of the variance of all."""


@dataclass(frozen=True)
class GaussianProcess:
    """The posterior given some points and their values.

    Attributes
    ----------
    points : (n, d) float64
    mean, deviation : float
        Mean and deviation of the values; the posterior is of standardised ones.
    scale : float
        Length scale.
    factor : (n, n) float64
        Lower Cholesky factor of the covariance.
    weights : (n,) float64
        Covariance^-1 times the standardised values.
    """

    points: FloatArray
    mean: float
    deviation: float
    scale: float
    factor: FloatArray
    weights: FloatArray

    @staticmethod
    def of(points: FloatArray, values: FloatArray) -> GaussianProcess:
        """Fit the process to at least one point (O(n^3) for each length scale)."""
        mean = float(values.mean())
        deviation = float(values.std()) or 1.0
        standardised = (values - mean) / deviation
        best: tuple[float, float, FloatArray, FloatArray] | None = None
        for scale in SCALES:
            covariance = _covariance(points, points, scale) + NOISE * np.eye(len(points))
            factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
            weights = np.asarray(np.linalg.solve(factor.T, np.linalg.solve(factor, standardised)), dtype=np.float64)
            likelihood = -0.5 * float(standardised @ weights) - float(np.log(np.diag(factor)).sum())
            if best is None or likelihood > best[0]:
                best = likelihood, scale, factor, weights
        assert best is not None
        return GaussianProcess(points, mean, deviation, *best[1:])

    def posterior(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the standard deviation at some points, in the units of the values."""
        between = _covariance(points, self.points, self.scale)
        reduced = np.linalg.solve(self.factor, between.T)
        variance = np.maximum(1.0 - (reduced**2).sum(axis=0), 0.0)
        return self.mean + self.deviation * (between @ self.weights), self.deviation * np.sqrt(variance)

    def expected_improvement(self, points: FloatArray, least: float) -> FloatArray:
        """Return the expected improvement at each point over the smallest known value."""
        mean, deviation = self.posterior(points)
        safe = np.maximum(deviation, 1e-300)
        ratio = (least - mean) / safe
        below = np.array([0.5 * (1.0 + math.erf(one / math.sqrt(2.0))) for one in ratio.tolist()])
        density = np.exp(-0.5 * np.minimum(ratio**2, 1400.0)) / math.sqrt(2.0 * math.pi)
        return np.where(deviation > 0, (least - mean) * below + deviation * density, np.maximum(least - mean, 0.0))


def _covariance(one: FloatArray, other: FloatArray, scale: float) -> FloatArray:
    squared = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
    found: FloatArray = np.exp(-0.5 * squared / scale**2)
    return found
