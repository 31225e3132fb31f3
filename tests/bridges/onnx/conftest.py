"""The command line of the tests."""

from tests.cli.conftest import run

__all__ = ["run"]
