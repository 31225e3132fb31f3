"""What holds for every test."""


def pytest_make_parametrize_id(val, argname):
    """Name byte strings by their argument: compressed ones carry the time, and workers must collect equal names."""
    return argname if isinstance(val, bytes) else None
