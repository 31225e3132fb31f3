"""New locations of modules that plug-ins used to import; for one release, importing an old name reports the new one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

MOVED = {
    "remat.actions": "remat.schedule.actions",
    "remat.auto": "remat.plugin.selection",
    "remat.bounds": "remat.graph.bounds",
    "remat.chain": "remat.plugin",
    "remat.context": "remat.plugin",
    "remat.machine": "remat.plugin",
    "remat.operations": "remat.plugin",
    "remat.options": "remat.plugin",
    "remat.problem": "remat.plugin",
    "remat.registry": "remat.plugin",
    "remat.steps": "remat.plugin",
    "remat.taskgraph": "remat.plugin",
    "remat_algorithms.emit": "remat.plugin",
}


class MovedModules:
    """An import finder at the end of the list that reports the new name of a module."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Raise an ImportError for a module that has moved; return None for all others."""
        if name in MOVED:
            raise ImportError(
                f"{name} is gone: import from {MOVED[name]} (see docs/how-to/write-an-algorithm.md)", name=name
            )


def install() -> None:
    """Append the finder; it sees only imports that no other finder resolves."""
    if MovedModules not in sys.meta_path:
        sys.meta_path.append(MovedModules)
