"""Conformance suite for all algorithms, built-in and plug-in.

Three lines in a test module run it with pytest (hypothesis draws the instances)::

    from remat.testing import AlgorithmSuite

    class TestMine(AlgorithmSuite):
        algorithm = "mine"

`remat.testing.strategies` holds the hypothesis strategies for instance documents of all kinds.
"""

from __future__ import annotations

from remat.testing.suite import AlgorithmSuite

__all__ = ["AlgorithmSuite"]
