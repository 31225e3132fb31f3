"""Interfaces of bridges whose names are imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_first_use(
    namespace: dict[str, Any], package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module.

    Parameters
    ----------
    namespace : dict
        The module's ``globals()``.
    package : str
        Where the modules in `homes` are.
    homes : mapping of str to str
        For each name the module that has it: ``module``, or ``module:name`` if it is called otherwise there.
    """

    def getattribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        module, _, known = homes[name].partition(":")
        value = getattr(import_module(f"{package}.{module}"), known or name)
        namespace[name] = value
        return value

    return getattribute, lambda: sorted({*namespace, *homes})
