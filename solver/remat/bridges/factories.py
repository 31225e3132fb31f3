"""`MODULE:FACTORY`: finds and calls a function in a user's file."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from remat.errors import RematError


def make(named: str, error: type[RematError], **given: Any) -> Any:
    """Call a factory, and return what it makes.

    Parameters
    ----------
    named : str
        ``package.module:function``, or ``path/to/file.py:function``; modules are also found in the current folder.
    error : type of RematError
        What is raised if the function is not there or raises (its own exception is the cause).
    **given
        Arguments of the factory.
    """
    place, _, name = named.rpartition(":")
    if not place or not name.isidentifier():
        raise error(f"expected MODULE:FACTORY, such as train:make, not {named!r}")
    path = Path(place)
    folder = path.parent if path.suffix == ".py" else Path()
    sys.path.insert(0, str(folder.resolve()))
    try:
        factory = getattr(import_module(path.stem if path.suffix == ".py" else place), name, None)
    except Exception as found:
        raise error(f"{place} cannot be imported: {type(found).__name__}: {found}") from found
    finally:
        sys.path.pop(0)
    if not callable(factory):
        raise error(f"{place} has no function {name!r}")
    try:
        return factory(**given)
    except Exception as found:
        raise error(f"{named} raised {type(found).__name__}: {found}") from found
