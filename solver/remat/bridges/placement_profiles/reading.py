"""Checked access to fields of a foreign JSON document; errors name the path."""

from __future__ import annotations

import math
import os
from typing import IO, Any

from remat.documents import read_document
from remat.errors import InstanceError, QuantityError
from remat.messages import brief
from remat.units import LARGEST_SIZE, LARGEST_TIME, Number, parse_number

Source = str | os.PathLike[str] | IO[Any] | dict[str, Any]


def read_source(source: Source) -> dict[str, Any]:
    """Return the document of a path, an open file, or as it is."""
    document = source if isinstance(source, dict) else read_document(source)
    if not isinstance(document, dict):
        raise InstanceError("expected a JSON object", "$")
    return document


def name_of(source: Source, fallback: str) -> str:
    """Return what an instance from there is called: the file's name without its suffixes."""
    path = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "")
    stem = os.path.basename(os.fspath(path)) if not isinstance(source, dict) and path else ""
    return stem.removesuffix(".gz").removesuffix(".json") or fallback


def listed(document: dict[str, Any], key: str, path: str = "$") -> list[dict[str, Any]]:
    """Return a list of objects."""
    found = document.get(key)
    if not isinstance(found, list):
        raise InstanceError("expected a list of objects", f"{path}.{key}")
    for index, entry in enumerate(found):
        if not isinstance(entry, dict):
            raise InstanceError("expected an object", f"{path}.{key}[{index}]")
    return found


def number(entry: dict[str, Any], key: str, path: str, largest: float = LARGEST_TIME) -> Number:
    """Return a finite number >= 0; an int where it is one."""
    if key not in entry:
        raise InstanceError("expected a number >= 0: the key is missing", f"{path}.{key}")
    try:
        return parse_number(entry[key], largest=largest)
    except QuantityError as error:
        raise InstanceError(str(error), f"{path}.{key}") from None


def size(entry: dict[str, Any], key: str, path: str) -> int:
    """Return a number of bytes, rounded up."""
    return math.ceil(number(entry, key, path, LARGEST_SIZE))


def count(entry: dict[str, Any], key: str, path: str) -> int:
    """Return a whole number >= 0."""
    found = number(entry, key, path, LARGEST_SIZE)
    if found != int(found):
        raise InstanceError(f"expected a whole number, not {found}", f"{path}.{key}")
    return int(found)


def text(entry: dict[str, Any], key: str, path: str) -> str:
    """Return a text; empty where the key is missing or null."""
    found = entry.get(key)
    if found is not None and not isinstance(found, str):
        raise InstanceError(f"expected a text, not {brief(found)}", f"{path}.{key}")
    return found or ""
