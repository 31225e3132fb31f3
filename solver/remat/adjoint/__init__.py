"""`remat.adjoint(...)` builds time loops, `remat.adjoint.run` runs their plans; other names moved to `time_loops`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """An imported submodule hides the builder of the same name: so it builds, too."""

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        from remat.building.adjoint import adjoint

        return adjoint.__doc__

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from remat.building.adjoint import adjoint

        return adjoint(*arguments, **options)


def __getattr__(name: str) -> Any:
    import warnings

    from remat import time_loops

    if name == "run":
        return time_loops.run
    if name not in time_loops.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"remat.adjoint.{name} has moved: import it from remat.time_loops", DeprecationWarning, stacklevel=2)
    return getattr(time_loops, name)


sys.modules[__name__].__class__ = _CallableModule
