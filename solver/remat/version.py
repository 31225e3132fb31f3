"""The version of the two packages, which are one distribution."""

__version__ = "0.2.0"
