"""The Gaussian process of Bayesian searches: posteriors of two points by hand, and its use on a known function."""

from __future__ import annotations

import math

import numpy as np
import pytest

from remat_algorithms.kit.gaussian_process import NOISE, GaussianProcess


def test_posterior_of_two_points() -> None:
    """Values 5 and 1 at 0 and 1 are 1 and -1 when standardised: their middle has mean 3, and a variance by hand.

    The middle has covariance c with both, these k with each other: the variance is 1 - 2 c^2 / (1 + k).
    """
    process = GaussianProcess.of(np.array([[0.0], [1.0]]), np.array([5.0, 1.0]))
    c, k = math.exp(-1 / (8 * process.scale**2)), math.exp(-1 / (2 * process.scale**2))
    mean, deviation = process.posterior(np.array([[0.5], [0.0]]))
    assert mean == pytest.approx([3.0, 5.0], abs=1e-4)
    assert deviation == pytest.approx([2 * math.sqrt(1 - 2 * c**2 / (1 + k + NOISE)), 0.0], abs=1e-2)
    # Far from all known points: the mean and the deviation of the values.
    mean, deviation = process.posterior(np.array([[50.0]]))
    assert (mean[0], deviation[0]) == pytest.approx((3.0, 2.0))


def test_expected_improvement_vanishes_at_known_points() -> None:
    """It is 0 at known values, and deviation / sqrt(2 pi) where the mean is the smallest known value."""
    process = GaussianProcess.of(np.array([[0.0], [1.0]]), np.array([5.0, 1.0]))
    known, middle = process.expected_improvement(np.array([[1.0], [0.5]]), 1.0)
    assert known < 2e-3
    assert middle < process.posterior(np.array([[0.5]]))[1][0]
    at_mean = process.expected_improvement(np.array([[50.0]]), 3.0)[0]
    assert at_mean == pytest.approx(2.0 / math.sqrt(2 * math.pi))


def test_the_length_scale_follows_the_values() -> None:
    """A slow wave has a longer scale than a quick one."""
    points = np.linspace(0, 1, 12)[:, None]
    slow = GaussianProcess.of(points, np.sin(2 * points[:, 0]))
    quick = GaussianProcess.of(points, np.sin(25 * points[:, 0]))
    assert slow.scale > quick.scale


def test_equal_values_are_no_division_by_zero() -> None:
    process = GaussianProcess.of(np.array([[0.0], [1.0]]), np.array([2.0, 2.0]))
    assert process.posterior(np.array([[0.3]]))[0] == pytest.approx([2.0])
