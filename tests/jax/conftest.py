"""These tests need JAX (`make test-jax`)."""

from importlib.util import find_spec

from tests.cli.conftest import run

__all__ = ["run"]

if find_spec("jax") is None:
    collect_ignore_glob = ["*.py"]
