"""The readers, by name; each target is built, and its reader imported, on first use."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

MODULES = {
    "instance": "instances",
    "schedule": "schedules",
    "machine": "machines",
    "cluster": "machines",
    "csv-orders": "imports",
    "stage-times": "imports",
    "layer-graph": "profiles",
    "split": "profiles",
    "tensor-parallel": "profiles",
    "journal": "journals",
    "matrix-market": "imports",
    "model-config": "foreign",
    "graph-text": "foreign",
    "foreign-graph": "foreign",
    "profile": "foreign",
    "units": "texts",
    "options": "texts",
}
"""Name -> module in this folder, which has a function of that name."""


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes
    ----------
    name : str
    read : callable
        Reads the bytes of a document, and does with it what comes next; raises `remat.RematError` for a broken one.
    seeds : tuple of bytes
        Documents that are read, each of another form.
    words : tuple of str
        Keys and names that the reader knows.
    tree : bool
        Whether documents are JSON.
    """

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    words: tuple[str, ...] = ()
    tree: bool = True


@cache
def target(name):
    """Return a target by its name."""
    module = import_module(f"{__name__}.{MODULES[name]}")
    return getattr(module, name.replace("-", "_"))()
