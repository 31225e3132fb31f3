"""Conversion of documents created in Python: scalars and arrays of numpy become numbers and lists of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any

_PLAIN = frozenset([int, float, str, bool, type(None)])


def native(node: Any) -> Any:
    """Return a document with plain numbers, texts, lists and dicts; the same object if it already is one.

    Anything with a `tolist` or an `item` method counts as an array or a scalar, as in numpy, pandas and PyTorch.
    """
    try:
        return _native(node)
    except RecursionError:
        return node


def _native(node: Any) -> Any:
    kind = type(node)
    if kind in _PLAIN:
        return node
    if isinstance(node, (list, tuple)):
        if set(map(type, node)) <= _PLAIN:
            return node if kind is list else list(node)
        entries = [_native(entry) for entry in node]
        changed = kind is not list or any(one is not two for one, two in zip(entries, node, strict=True))
        return entries if changed else node
    if isinstance(node, Mapping):
        found = {native_key(key): _native(value) for key, value in node.items()}
        same = kind is dict and all(map(is_, found, node)) and all(map(is_, found.values(), node.values()))
        return node if same else found
    return scalar_or_list(node)


def native_key(key: Any) -> Any:
    """Return the key of a mapping; scalars of numpy as numbers and texts, and all else unchanged."""
    return scalar_or_list(key) if getattr(key, "shape", None) == () else key


def scalar_or_list(node: Any) -> Any:
    """Return a scalar of numpy as a number or text, and an array as a list; return anything else unchanged."""
    if getattr(node, "shape", None) == () and callable(getattr(node, "item", None)):
        plain = node.item()
        return float(plain) if type(plain).__name__ == "longdouble" else plain
    to_list = getattr(node, "tolist", None)
    if callable(to_list):
        listed = to_list()
        return _native(listed) if isinstance(listed, list) else node
    return node
