"""Draws: the first ones in every run, the others where the slow tests run, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy


def seeds(fast: int, every: int, start: int = 0) -> list[Any]:
    """Return the numbers from `start` to below `every`; those after the first `fast` ones are slow."""
    first = start + fast
    return [*range(start, first), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(first, every))]


def few(fast: Any, every: Any) -> list[Any]:
    """Return two values of a parameter, such as numbers of draws: one for every run, one for the slow tests."""
    return [fast, pytest.param(every, marks=pytest.mark.slow)]


def examples(
    fast: int, every: int, *strategies: SearchStrategy[Any], **more: Any
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Make a test of a check of drawn examples: `fast` of them in every run, `every` in the slow tests."""

    def decorate(check: Callable[..., None]) -> Callable[[int], None]:
        def test(count: int) -> None:
            settings(max_examples=count, deadline=None, **more)(given(*strategies)(check))()

        test.__name__, test.__qualname__, test.__doc__ = check.__name__, check.__qualname__, check.__doc__
        test.__module__ = check.__module__
        marked: Callable[[int], None] = pytest.mark.parametrize("count", few(fast, every))(test)
        return marked

    return decorate
