"""Collections of dask: their graphs as documents, and priorities from schedules.

`document` writes a graph as JSON, without code or data; `order` returns priorities for dask's scheduler.
"""

from __future__ import annotations

from typing import Any

__all__ = ["document", "order"]


def __getattr__(name: str) -> Any:
    """Import what needs dask when it is asked for."""
    if name in __all__:
        from remat.bridges.dask import collections

        return getattr(collections, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
