"""The old path of `remat.time_loops`, for one release; `remat.adjoint(...)` is the builder of time loops."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """An imported submodule hides the builder of the same name: so it builds, too."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from remat.building.adjoint import adjoint

        return adjoint(*arguments, **options)


def __getattr__(name: str) -> Any:
    import warnings

    from remat import time_loops

    if name not in time_loops.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"remat.adjoint.{name} has moved: import it from remat.time_loops", DeprecationWarning, stacklevel=2)
    return getattr(time_loops, name)


sys.modules[__name__].__class__ = _CallableModule
