"""The conformance suite: what is asked of every algorithm, for the built-in zoo and for plug-ins alike.

Three lines in a test module of your own run it with pytest (hypothesis draws the instances)::

    from remat.testing import AlgorithmSuite

    class TestMine(AlgorithmSuite):
        algorithm = "mine"

`remat.testing.strategies` holds the hypothesis strategies for instance documents of all kinds.
"""

from __future__ import annotations

from remat.testing.suite import AlgorithmSuite

__all__ = ["AlgorithmSuite"]
