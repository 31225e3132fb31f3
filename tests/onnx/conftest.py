"""These tests need onnx (`make test-onnx`)."""

from importlib.util import find_spec

from tests.cli.conftest import run

__all__ = ["run"]

if find_spec("onnx") is None:
    collect_ignore_glob = ["*.py"]
