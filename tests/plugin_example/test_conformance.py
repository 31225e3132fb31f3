"""The plug-in passes the suite; this is all that its author has to write for it."""

from remat.testing import AlgorithmSuite


class TestRandomOrder(AlgorithmSuite):
    algorithm = "random-order"
