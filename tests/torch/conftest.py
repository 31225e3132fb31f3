"""These tests run only on request (`make test-torch`): collecting them elsewhere must be free."""

import os

import pytest

if "REMAT_TEST_TORCH" not in os.environ:
    collect_ignore_glob = ["*.py"]


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Run on one thread: sums have one order."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fresh_compiler():
    """Forget the graphs of other tests."""
    import torch

    torch._dynamo.reset()
