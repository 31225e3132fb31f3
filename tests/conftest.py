"""Settings for every test."""

import gc
import logging
import os

import pytest

# Workers inherit the terminal width, which would truncate output.
os.environ.pop("COLUMNS", None)


def pytest_make_parametrize_id(val, argname):
    """Name byte strings by their argument: compressed ones carry the time, and workers must collect equal names."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without the collector: all of the hundreds of thousands of objects stay, and it looks in vain.

    Afterwards it looks more rarely: what tests share stays as well, and is looked through each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(5_000, 10, 100)
        gc.enable()


class _Bugs(logging.Handler):
    """Collects what the library logs of algorithms that failed while others went on."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture(autouse=True)
def no_algorithm_fails(request):
    """Count a failing member of a portfolio as a failure of the test, unless it is marked `failing_algorithm`."""
    logger, bugs = logging.getLogger("remat"), _Bugs()
    logger.addHandler(bugs)
    try:
        yield
    finally:
        logger.removeHandler(bugs)
    if request.node.get_closest_marker("failing_algorithm") is None:
        assert not bugs.lines
