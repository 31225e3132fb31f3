"""What holds for every test."""

import gc

import pytest

# Collecting makes hundreds of thousands of objects, all of which stay: the collector would only look at them in vain.
gc.disable()


def pytest_make_parametrize_id(val, argname):
    """Name byte strings by their argument: compressed ones carry the time, and workers must collect equal names."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a class, which share answers, on one worker, as loadscope does; spread those of a module."""
    from xdist.scheduler import LoadScopeScheduling

    class Classes(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path, *names = nodeid.split("[")[0].split("::")
            return "::".join((path, *names[:-1])) if len(names) > 1 else nodeid

    return Classes(config, log) if config.getvalue("dist") == "loadscope" else None
